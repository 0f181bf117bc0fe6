//! Metrics that are collected for each scrape: those of the engine and of this process.

use std::collections::BTreeMap;
use std::fmt;

use api::Isolation;
use builder::Builder;
use engine::{Engine, MetricsSnapshot, PoolState, SandboxCounts};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::latency;
use crate::log_writer::lost_lines;

const BYTES_PER_MB: u64 = 1 << 20;

/// Label name, label value, value. An empty label name means no label.
type Sample<'a> = (&'a str, &'a str, u64);
/// A second label, as the pairs of name and value in a sample.
type Sample2<'a> = ([(&'a str, &'a str); 2], u64);

struct Encoder<'a>(DescriptorEncoder<'a>);

impl Encoder<'_> {
    fn gauges(&mut self, name: &str, help: &str, values: &[Sample<'_>]) -> fmt::Result {
        self.put(name, help, MetricType::Gauge, values)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.put(name, help, MetricType::Gauge, &[("", "", value)])
    }

    fn counters(&mut self, name: &str, help: &str, values: &[Sample<'_>]) -> fmt::Result {
        self.put(name, help, MetricType::Counter, values)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.put(name, help, MetricType::Counter, &[("", "", value)])
    }

    fn put2(&mut self, name: &str, help: &str, kind: MetricType, values: &[Sample2<'_>]) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in values {
            encode_value(kind, *value, family.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn put(&mut self, name: &str, help: &str, kind: MetricType, values: &[Sample<'_>]) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for (label, text, value) in values {
            if label.is_empty() {
                // A metric without a label has one value.
                return encode_value(kind, *value, family);
            }
            encode_value(kind, *value, family.encode_family(&[(*label, *text)])?)?;
        }
        Ok(())
    }
}

fn encode_value(kind: MetricType, value: u64, to: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        MetricType::Counter => ConstCounter::new(value).encode(to),
        _ => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(to),
    }
}

/// Collects the engine's metrics.
pub struct EngineCollector(pub Engine);

impl fmt::Debug for EngineCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("EngineCollector")
    }
}

impl Collector for EngineCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.metrics();
        let mut encoder = Encoder(encoder);
        present(&mut encoder, &snapshot)?;
        capacity(&mut encoder, &snapshot)?;
        network(&mut encoder, &snapshot)?;
        latency::encode(&mut encoder.0, &snapshot)?;
        given_up(&mut encoder, &snapshot)?;
        counters(&mut encoder, &snapshot)
    }
}

fn present(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let all =
        |number: fn(&SandboxCounts) -> u64| snapshot.sandboxes.iter().map(|(_, counts)| number(counts)).sum();
    encoder.gauges(
        "sandboxes",
        "Sandboxes by state; terminated ones are not counted",
        &[
            ("state", "creating", snapshot.creating),
            ("state", "running", all(|counts| counts.running)),
            ("state", "paused", all(|counts| counts.paused)),
        ],
    )?;
    let by_isolation = snapshot.sandboxes.iter().flat_map(|(isolation, counts)| {
        let sample = |state, count| ([("isolation", isolation.name()), ("state", state)], count);
        [sample("running", counts.running), sample("paused", counts.paused)]
    });
    encoder.put2(
        "sandboxes_by_isolation",
        "Sandboxes by isolation and state; terminated ones are not counted",
        MetricType::Gauge,
        &by_isolation.collect::<Vec<_>>(),
    )?;
    encoder.gauges(
        "executions",
        "Commands that are running, and that wait for a slot",
        &[
            ("state", "running", snapshot.executions_running),
            ("state", "waiting", snapshot.executions_waiting),
        ],
    )?;
    pool(encoder, &snapshot.pool)
}

fn pool(encoder: &mut Encoder<'_>, pools: &[PoolState]) -> fmt::Result {
    for (name, help, number) in [
        (
            "pool_ready",
            "Provisioned sandboxes in the warm pool",
            (|pool| pool.ready) as fn(&PoolState) -> u32,
        ),
        ("pool_target", "Target number of sandboxes in the warm pool", |pool| pool.target),
    ] {
        let mut of_images = BTreeMap::new();
        for pool in pools {
            *of_images.entry(pool.key.image.as_str()).or_insert(0) += u64::from(number(pool));
        }
        let samples: Vec<Sample<'_>> =
            of_images.into_iter().map(|(image, count)| ("image", image, count)).collect();
        encoder.gauges(name, help, &samples)?;
        let samples = pools.iter().map(|pool| {
            let labels = [("image", pool.key.image.as_str()), ("isolation", pool.key.isolation.name())];
            (labels, u64::from(number(pool)))
        });
        let samples: Vec<Sample2<'_>> = samples.collect();
        encoder.put2(&format!("{name}_by_isolation"), help, MetricType::Gauge, &samples)?;
    }
    Ok(())
}

fn capacity(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let (all, used) = (&snapshot.capacity, &snapshot.usage);
    encoder.gauge("capacity_vcpus", "vCPUs that can be allocated", all.cpu)?;
    encoder.gauge("used_vcpus", "Allocated vCPUs, including the warm pool", used.cpu)?;
    let bytes = |megabytes: u64| megabytes.saturating_mul(BYTES_PER_MB);
    encoder.gauge("capacity_memory_bytes", "Memory that can be allocated", bytes(all.memory_mb))?;
    encoder.gauge("used_memory_bytes", "Allocated memory, including the warm pool", bytes(used.memory_mb))?;
    encoder.gauge("capacity_disk_bytes", "Disk that can be allocated", bytes(all.disk_mb))?;
    encoder.gauge("used_disk_bytes", "Allocated disk, including the warm pool", bytes(used.disk_mb))?;
    let Some(disk) = snapshot.disk else { return Ok(()) };
    encoder.gauge(
        "host_disk_free_bytes",
        "Free space of the file system that holds the data directory",
        disk.free_bytes,
    )?;
    encoder.gauge("host_disk_reserve_bytes", "Reserve of free disk space", disk.reserve_bytes)?;
    encoder.gauge(
        "host_disk_pressure",
        "1 from when free disk space falls below the reserve until it exceeds one and a half times the reserve",
        disk.is_low.into(),
    )
}

fn network(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let refused: Vec<Sample<'_>> =
        snapshot.network_refusals.iter().map(|(reason, count)| ("reason", *reason, *count)).collect();
    encoder.counters(
        "network_refusals",
        "Connections and lookups of sandboxes that were refused, by reason",
        &refused,
    )?;
    let traffic = &snapshot.traffic;
    encoder.gauges(
        "network_bytes",
        "Traffic of existing sandboxes since their processes were last started",
        &[("direction", "out", traffic.bytes_out), ("direction", "in", traffic.bytes_in)],
    )?;
    encoder.gauge(
        "network_proxied_connections",
        "Open connections through the egress proxy",
        traffic.connections,
    )
}

fn given_up(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let help = "Work that is not begun again, because the service has ended during it too often";
    encoder.counter("work_given_up", help, snapshot.counts.work_given_up)
}

fn hibernation(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let counts = &snapshot.counts;
    encoder.counter("hibernated", "Sandboxes whose processes were stored on the disk", counts.hibernated)?;
    encoder.counter("woken", "Hibernated sandboxes whose processes were continued", counts.woken)?;
    let paged_out = "Paused containers whose memory was moved to swap space";
    encoder.counter("paged_out", paged_out, counts.paged_out)
}

fn counters(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let counts = &snapshot.counts;
    encoder.counters(
        "created",
        "Sandboxes created, from the warm pool or without it",
        &[
            ("source", "pool", counts.created_warm_container + counts.created_warm_gvisor),
            ("source", "cold", counts.created_cold_container + counts.created_cold_gvisor),
        ],
    )?;
    let sample =
        |isolation: Isolation, source, count| ([("isolation", isolation.name()), ("source", source)], count);
    encoder.put2(
        "created_by_isolation",
        "Sandboxes created, by isolation, from the warm pool or without it",
        MetricType::Counter,
        &[
            sample(Isolation::Container, "pool", counts.created_warm_container),
            sample(Isolation::Container, "cold", counts.created_cold_container),
            sample(Isolation::Gvisor, "pool", counts.created_warm_gvisor),
            sample(Isolation::Gvisor, "cold", counts.created_cold_gvisor),
        ],
    )?;
    encoder.counter("create_failures", "Creates that failed with an internal error", counts.create_failed)?;
    encoder.counters(
        "engine_refusals",
        "Requests that the engine refused, by the missing resource",
        &[
            ("resource", "capacity", counts.refused_capacity),
            ("resource", "user_ids", counts.refused_slots),
            ("resource", "executions", counts.refused_executions),
            ("resource", "host_resources", counts.refused_shortage),
            ("resource", "quota", counts.refused_quota),
        ],
    )?;
    encoder.counter("executions_started", "Commands started", counts.executions_started)?;
    encoder.counters(
        "paused",
        "Pauses by cause",
        &[
            ("cause", "request", counts.paused_on_request),
            ("cause", "idle", counts.paused_idle),
            ("cause", "timeout", counts.paused_timeout),
            ("cause", "disk_pressure", counts.paused_disk_pressure),
        ],
    )?;
    encoder.counter("resumed", "Resumes", counts.resumed)?;
    hibernation(encoder, snapshot)?;
    snapshots(encoder, snapshot)?;
    encoder.counters(
        "terminated",
        "Terminations by cause",
        &[
            ("cause", "request", counts.terminated_on_request),
            ("cause", "timeout", counts.terminated_timeout),
            ("cause", "expired", counts.terminated_expired),
        ],
    )?;
    losses(encoder, snapshot)?;
    encoder.counter("purged_sandboxes", "Records of terminated sandboxes removed", counts.purged_sandboxes)
}

fn losses(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let counts = &snapshot.counts;
    encoder.counter(
        "processes_lost",
        "Sandboxes whose processes ended unexpectedly",
        counts.processes_lost,
    )?;
    encoder.counter(
        "memory_kills",
        "Processes of sandboxes that the kernel has killed for lack of memory",
        counts.memory_kills,
    )?;
    encoder.counter(
        "events_lost",
        "Events of commands and files that could not be stored",
        counts.events_lost,
    )
}

fn snapshots(encoder: &mut Encoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    let counts = &snapshot.counts;
    encoder.gauge("snapshots", "Snapshots", snapshot.snapshots.count)?;
    encoder.gauge("snapshot_bytes", "Disk space of snapshots", snapshot.snapshots.bytes)?;
    encoder.gauge(
        "unrecorded_snapshot_bytes",
        "Disk space of copies below forks, and of deleted snapshots that are still needed",
        snapshot.unrecorded_snapshot_bytes,
    )?;
    encoder.counter("snapshots_taken", "Snapshots taken", counts.snapshots_taken)?;
    encoder.counter("snapshots_stored", "Snapshots copied to the object store", counts.snapshots_stored)?;
    encoder.counter("snapshot_bytes_sent", "Bytes sent for these copies", counts.snapshot_bytes_sent)?;
    encoder.counter(
        "snapshot_uploads_failed",
        "Failed attempts to copy snapshots",
        counts.snapshot_uploads_failed,
    )?;
    encoder.counter(
        "snapshots_fetched",
        "Snapshots copied from the object store",
        counts.snapshots_fetched,
    )?;
    encoder.counter(
        "sandboxes_stored",
        "Hibernated sandboxes copied to the object store",
        counts.sandboxes_stored,
    )?;
    encoder.counter("sandboxes_adopted", "Sandboxes adopted from other hosts", counts.sandboxes_adopted)?;
    encoder.counter(
        "snapshots_expired",
        "Snapshots deleted after their retention",
        counts.snapshots_expired,
    )?;
    encoder.counter("rolled_back", "Rollbacks", counts.rolled_back)?;
    encoder.counter("forked", "Forks", counts.forked)
}

/// Collects the metrics of builds.
pub struct BuildCollector(pub Builder);

impl fmt::Debug for BuildCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("BuildCollector")
    }
}

impl Collector for BuildCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counts = self.0.counts();
        let mut encoder = Encoder(encoder);
        encoder.counters(
            "template_builds",
            "Builds of templates by their end",
            &[
                ("state", "ready", counts.ready),
                ("state", "failed", counts.failed),
                ("state", "cancelled", counts.cancelled),
            ],
        )?;
        encoder.counters(
            "template_steps",
            "Steps of these builds, by whether they ran or came from the cache",
            &[("source", "run", counts.steps_run), ("source", "cache", counts.steps_cached)],
        )
    }
}

/// Collects the end of the certificate that new connections get.
pub struct CertificateCollector(pub listen::Tls);

impl fmt::Debug for CertificateCollector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("CertificateCollector")
    }
}

impl Collector for CertificateCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let end = self.0.certificate().not_after.unix_timestamp();
        Encoder(encoder).gauge(
            "tls_certificate_not_after_seconds",
            "End of the validity of the TLS certificate, in seconds since the epoch",
            u64::try_from(end).unwrap_or(0),
        )
    }
}

/// Collects the metrics of this process.
#[derive(Debug)]
pub struct ProcessCollector {
    page_bytes: u64,
}

impl ProcessCollector {
    pub fn new() -> Self {
        Self { page_bytes: rustix::param::page_size() as u64 }
    }
}

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut encoder = Encoder(encoder);
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0);
        encoder.gauge(
            "process_resident_memory_bytes",
            "Resident memory of the daemon, without sandboxes",
            resident.saturating_mul(self.page_bytes),
        )?;
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        encoder.gauge("process_open_fds", "Open files of the daemon", open)?;
        encoder.counter("log_lines_lost", "Lines of the log that could not be written", lost_lines())
    }
}
