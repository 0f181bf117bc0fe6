//! Figures that are read when somebody asks for them: the engine's, and this process's own.

use std::fmt;

use engine::{Engine, MetricsSnapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

const BYTES_PER_MB: u64 = 1 << 20;

/// One figure with one label; no label where both are empty.
type Labelled<'a> = (&'a str, &'a str, u64);

struct Sheet<'a>(DescriptorEncoder<'a>);

impl Sheet<'_> {
    fn gauges(&mut self, name: &str, help: &str, values: &[Labelled<'_>]) -> fmt::Result {
        self.put(name, help, MetricType::Gauge, values)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.put(name, help, MetricType::Gauge, &[("", "", value)])
    }

    fn counters(&mut self, name: &str, help: &str, values: &[Labelled<'_>]) -> fmt::Result {
        self.put(name, help, MetricType::Counter, values)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.put(name, help, MetricType::Counter, &[("", "", value)])
    }

    fn put(&mut self, name: &str, help: &str, kind: MetricType, values: &[Labelled<'_>]) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (label, text, value) in values {
            if label.is_empty() {
                // One without a label stands alone.
                return figure(kind, *value, family);
            }
            figure(kind, *value, family.encode_family(&[(*label, *text)])?)?;
        }
        Ok(())
    }
}

fn figure(kind: MetricType, value: u64, to: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(to),
        _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(to),
    }
}

/// The engine's.
pub struct Living(pub Engine);

impl fmt::Debug for Living {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Living")
    }
}

impl Collector for Living {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let facts = self.0.metrics();
        let mut sheet = Sheet(encoder);
        present(&mut sheet, &facts)?;
        capacity(&mut sheet, &facts)?;
        network(&mut sheet, &facts)?;
        since_the_start(&mut sheet, &facts)
    }
}

fn present(sheet: &mut Sheet<'_>, facts: &MetricsSnapshot) -> fmt::Result {
    sheet.gauges(
        "sandboxes",
        "Sandboxes by state; terminated ones are not counted",
        &[
            ("state", "creating", facts.creating),
            ("state", "running", facts.running),
            ("state", "paused", facts.paused),
        ],
    )?;
    sheet.gauges(
        "executions",
        "Commands that run, and that wait for their turn",
        &[("state", "running", facts.executions_running), ("state", "waiting", facts.executions_waiting)],
    )?;
    let ready: Vec<Labelled<'_>> =
        facts.pool.iter().map(|shelf| ("image", shelf.image.as_str(), shelf.ready.into())).collect();
    sheet.gauges("pool_ready", "Sandboxes made ahead", &ready)?;
    let target: Vec<Labelled<'_>> =
        facts.pool.iter().map(|shelf| ("image", shelf.image.as_str(), shelf.target.into())).collect();
    sheet.gauges("pool_target", "Sandboxes that shall be made ahead", &target)
}

fn capacity(sheet: &mut Sheet<'_>, facts: &MetricsSnapshot) -> fmt::Result {
    let (all, used) = (&facts.capacity, &facts.usage);
    sheet.gauge("capacity_vcpus", "Processors that may be given away", all.cpu)?;
    sheet.gauge("used_vcpus", "Processors given away, to the pool too", used.cpu)?;
    let bytes = |megabytes: u64| megabytes.saturating_mul(BYTES_PER_MB);
    sheet.gauge("capacity_memory_bytes", "Memory that may be given away", bytes(all.memory_mb))?;
    sheet.gauge("used_memory_bytes", "Memory given away, to the pool too", bytes(used.memory_mb))?;
    sheet.gauge("capacity_disk_bytes", "Disk that may be given away", bytes(all.disk_mb))?;
    sheet.gauge("used_disk_bytes", "Disk given away, to the pool too", bytes(used.disk_mb))?;
    let Some(disk) = facts.disk else { return Ok(()) };
    sheet.gauge(
        "host_disk_free_bytes",
        "Free space of the file system that holds the data directory",
        disk.free_bytes,
    )?;
    sheet.gauge("host_disk_reserve_bytes", "Free space that stays in reserve", disk.reserve_bytes)?;
    sheet.gauge("host_disk_pressure", "1 while the disk is almost full", disk.is_low.into())
}

fn network(sheet: &mut Sheet<'_>, facts: &MetricsSnapshot) -> fmt::Result {
    let refused: Vec<Labelled<'_>> =
        facts.network_refusals.iter().map(|(reason, count)| ("reason", *reason, *count)).collect();
    sheet.counters("network_refusals", "What the network refused to sandboxes, by reason", &refused)?;
    let traffic = &facts.traffic;
    sheet.gauges(
        "network_bytes",
        "Bytes of the sandboxes there are, since the processes of each were last started",
        &[("direction", "out", traffic.bytes_out), ("direction", "in", traffic.bytes_in)],
    )?;
    sheet.gauge(
        "network_proxied_connections",
        "Connections that go through the proxy now",
        traffic.connections,
    )
}

fn since_the_start(sheet: &mut Sheet<'_>, facts: &MetricsSnapshot) -> fmt::Result {
    let counts = &facts.counts;
    sheet.counters(
        "created",
        "Sandboxes made for a request, from the pool or anew",
        &[("from", "pool", counts.created_warm), ("from", "nothing", counts.created_cold)],
    )?;
    sheet.counter(
        "create_failures",
        "Creations that failed through a fault of ours",
        counts.create_failed,
    )?;
    sheet.counters(
        "engine_refusals",
        "Requests that the engine turned away, by what was lacking",
        &[
            ("lack", "capacity", counts.refused_capacity),
            ("lack", "user_ids", counts.refused_slots),
            ("lack", "executions", counts.refused_executions),
            ("lack", "host_resources", counts.refused_shortage),
            ("lack", "quota", counts.refused_quota),
        ],
    )?;
    sheet.counter("executions_started", "Commands started", counts.executions_started)?;
    sheet.counters(
        "paused",
        "Pauses by cause",
        &[
            ("cause", "request", counts.paused_on_request),
            ("cause", "idle", counts.paused_idle),
            ("cause", "disk_pressure", counts.paused_disk_pressure),
        ],
    )?;
    sheet.counter("resumed", "Resumes", counts.resumed)?;
    sheet.counters(
        "terminated",
        "Sandboxes ended, by cause",
        &[
            ("cause", "request", counts.terminated_on_request),
            ("cause", "timeout", counts.terminated_timeout),
            ("cause", "expired", counts.terminated_expired),
        ],
    )?;
    sheet.counter("processes_lost", "Sandboxes whose processes ended unasked", counts.processes_lost)?;
    sheet.counter(
        "events_lost",
        "Events of commands, files and ports that could not be kept",
        counts.events_lost,
    )?;
    sheet.counter("purged_sandboxes", "Records of terminated sandboxes removed", counts.purged_sandboxes)
}

/// This process's own.
#[derive(Debug)]
pub struct Process {
    page_bytes: u64,
}

impl Process {
    pub fn new() -> Self {
        Self { page_bytes: rustix::param::page_size() as u64 }
    }
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut sheet = Sheet(encoder);
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
        sheet.gauge(
            "process_resident_memory_bytes",
            "Memory of the daemon, without that of sandboxes",
            resident.saturating_mul(self.page_bytes),
        )?;
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        sheet.gauge("process_open_fds", "Open files of the daemon", open)
    }
}
