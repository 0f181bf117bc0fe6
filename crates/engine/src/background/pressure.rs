//! The host watcher: samples the free disk and memory of the host.
//!
//! If the free disk will soon be below the low watermark, it pauses the sandboxes that are writing. Below the low watermark, the ledger
//! refuses creates, resumes, snapshots, forks, rollbacks and uploads until the high watermark is reached. The records, the event
//! journal and the execution logs share the file system with the sandboxes' disks; the reserve leaves space for their commits. The
//! watcher also sets how much disk may be promised. It reports disks that have become read-only, and discards warm sandboxes with one.
//!
//! If the available memory is below its reserve, it hibernates the sandbox that has been paused longest, or moves its memory to swap
//! space, then the next one.
//!
//! It runs as a task of the engine. A sample that fails is logged and changes nothing.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId, SandboxState};
use futures_util::StreamExt;
use rules::{
    FreeTrend, Pressure, ProcessState, Shortage, Watermarks, free_after_writeback, promisable_disk_mb,
};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::actor::DISK_PRESSURE;
use crate::capacity::host_watch::HostWatch;
use crate::capacity::ledger::Ledger;
use crate::capacity::provision::Provisioner;
use crate::capacity::provision::warm_pool::WarmPool;
use crate::error::{EngineError, HostError, SandboxError};
use crate::host::Host;
use crate::record::events;
use crate::record::stamped_store::StampedStore;
use crate::registry::SandboxRegistry;
use crate::registry::mailbox::{ActorHandle, ActorRequest, Processes};
use crate::tasks::Tasks;

const MB: u64 = 1 << 20;
/// The interval between two samples of what the sandboxes have written, without pressure.
const WRITE_SAMPLE_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between two samples while the disk is almost full.
const PRESSURE_INTERVAL: Duration = Duration::from_millis(200);
/// The next sample waits this many times as long as a write sample took, so that write samples use at most a tenth of
/// one CPU.
const WRITE_SAMPLE_SHARE: u32 = 10;
/// A sandbox is a writer if it wrote at least this much since the baseline. More than an empty disk occupies.
const WRITER_BYTES: u64 = 4 * MB;
const CONCURRENCY: usize = 32;
const PAUSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The delay after a pause that the full disk could not record. Each attempt freezes the sandbox for a moment.
const PAUSE_RETRY: Duration = Duration::from_secs(5);

/// Takes the first sample before it returns, so that nothing is admitted earlier. Then samples until the engine
/// stops.
pub async fn start(watched: WatchedHost, watch: HostWatch) {
    let tasks = watched.tasks.clone();
    let mut watcher = Watcher {
        watched,
        marks: Watermarks::of_reserve(watch.disk_reserve_bytes),
        watch,
        pressure: Pressure::AT_START,
        occupied: 0,
        dirty: 0,
        begin: Instant::now(),
        host_trend: FreeTrend::default(),
        trend: FreeTrend::default(),
        write_sample_duration: Duration::ZERO,
        last_write_sample: None,
        last_baseline: None,
        written: HashMap::new(),
        baseline: HashMap::new(),
        unrecorded_pauses: HashMap::new(),
        read_only: HashSet::new(),
        is_failing: false,
        is_look_failing: false,
        freeing: None,
    };
    let mut wait = watcher.sample_and_act().await;
    tasks.clone().spawn(async move {
        while tasks.until_stopped(tokio::time::sleep(wait)).await.is_some() {
            wait = watcher.sample_and_act().await;
        }
    });
}

/// What the watcher samples, and what it acts on.
pub struct WatchedHost {
    pub host: Arc<Host>,
    pub ledger: Arc<Ledger>,
    pub registry: Arc<SandboxRegistry>,
    pub warm_pool: Arc<WarmPool>,
    pub provisioner: Arc<Provisioner>,
    pub stamped_store: StampedStore,
    pub tasks: Tasks,
}

struct Watcher {
    watched: WatchedHost,
    watch: HostWatch,
    marks: Watermarks,
    pressure: Pressure,
    /// Bytes that all disks of sandboxes occupy.
    occupied: u64,
    /// Dirty bytes of all sandboxes that are not written back yet.
    dirty: u64,
    begin: Instant,
    /// Of the free space less all dirty pages of the host: known without a write sample, but often too low.
    host_trend: FreeTrend,
    /// Of the free space less the dirty pages of sandboxes, at the write samples.
    trend: FreeTrend,
    write_sample_duration: Duration,
    last_write_sample: Option<Instant>,
    last_baseline: Option<Instant>,
    /// Bytes that each sandbox had written at the last write sample, and at the baseline: a write sample at least
    /// [`WRITE_SAMPLE_INTERVAL`] before.
    written: HashMap<SandboxId, u64>,
    baseline: HashMap<SandboxId, u64>,
    /// When the full disk last could not record the pause of a sandbox, since the pressure began.
    unrecorded_pauses: HashMap<SandboxId, Instant>,
    /// Sandboxes whose disk is reported to be read-only.
    read_only: HashSet<SandboxId>,
    is_failing: bool,
    /// The look for read-only disks.
    is_look_failing: bool,
    /// Frees memory of a sandbox, and returns whether it did.
    freeing: Option<JoinHandle<bool>>,
}

impl Watcher {
    /// Takes a sample and acts on it. Returns the delay until the next sample.
    async fn sample_and_act(&mut self) -> Duration {
        let sample = match tokio::task::spawn_blocking({
            let sample = Arc::clone(&self.watch.sample);
            move || sample()
        })
        .await
        {
            Ok(Ok(sample)) => sample,
            Ok(Err(error)) => return self.sample_failed(&error),
            Err(error) => return self.sample_failed(&error),
        };
        self.is_failing = false;
        let before = self.pressure;
        let least = sample.disk_free_bytes.saturating_sub(sample.unwritten_bytes);
        let is_close = self.marks.is_below(self.host_trend.predict(self.now_ms(), least));
        let is_write_sample_due = is_close || before == Pressure::Low;
        if is_write_sample_due
            || self.last_write_sample.is_none_or(|last| last.elapsed() >= WRITE_SAMPLE_INTERVAL)
        {
            self.sample_writes(before).await;
        }
        let free = free_after_writeback(sample.disk_free_bytes, sample.unwritten_bytes, self.dirty);
        let predicted = if is_write_sample_due { self.trend.predict(self.now_ms(), free) } else { free };
        self.pressure = self.marks.next(before, free);
        let is_low = self.pressure == Pressure::Low;
        self.watch.record_sample(free, is_low);
        self.publish(free, sample.memory_available_bytes);
        if before != self.pressure {
            self.report(free);
        }
        let is_freeing =
            sample.memory_available_bytes < self.watch.memory_reserve_bytes && self.free_memory().await;
        if !is_low {
            self.unrecorded_pauses.clear();
        }
        // Between the watermarks running sandboxes may continue.
        if self.marks.is_below(predicted) {
            self.pause_writers(free).await;
        }
        let wait = match self.pressure {
            Pressure::Low => PRESSURE_INTERVAL,
            Pressure::None if is_freeing => PRESSURE_INTERVAL,
            Pressure::None => Duration::from_millis(self.marks.next_sample_ms(least)),
        };
        wait.max(self.write_sample_duration * WRITE_SAMPLE_SHARE)
    }

    fn now_ms(&self) -> u64 {
        base::millis(self.begin.elapsed())
    }

    fn sample_failed(&mut self, error: &dyn fmt::Display) -> Duration {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "cannot sample the free disk and memory of the host; keeping the last decision");
        }
        WRITE_SAMPLE_INTERVAL
    }

    fn publish(&self, free: u64, memory_available_bytes: u64) {
        let disk = (self.pressure == Pressure::Low)
            .then_some(Shortage::Disk { free_mb: free / MB, needed_mb: self.marks.high / MB });
        let reserve = self.watch.memory_reserve_bytes;
        let memory = (memory_available_bytes < reserve).then_some(Shortage::Memory {
            available_mb: memory_available_bytes / MB,
            reserve_mb: reserve / MB,
        });
        let promisable =
            promisable_disk_mb(free, self.occupied, self.watch.disk_reserve_bytes, self.watch.disk_limit_mb);
        self.watched.ledger.set_disk(promisable, self.watch.disk_overcommit);
        self.watched.ledger.set_shortages(disk, memory);
    }

    fn report(&self, free: u64) {
        let (free_mb, reserve_mb) = (free / MB, self.watch.disk_reserve_bytes / MB);
        match self.pressure {
            Pressure::Low => tracing::warn!(
                free_mb,
                reserve_mb,
                "the disk is almost full: pausing sandboxes that write, refusing creates, resumes, snapshots and uploads"
            ),
            Pressure::None => tracing::info!(free_mb, reserve_mb, "the disk has space again"),
        }
    }

    /// Frees memory of one sandbox after the other, beside the samples: storing processes can take long. Returns false if the last
    /// attempt freed nothing.
    async fn free_memory(&mut self) -> bool {
        let has_freed = match self.freeing.take() {
            Some(freeing) if !freeing.is_finished() => {
                self.freeing = Some(freeing);
                return true;
            }
            Some(freeing) => freeing.await.unwrap_or(false),
            None => true,
        };
        let registry = Arc::clone(&self.watched.registry);
        self.freeing = Some(self.watched.tasks.spawn(async move { free_memory_of_one(&registry).await }));
        has_freed
    }

    /// Measures what every sandbox has written. Under pressure the baseline stays, so that slow writers are found
    /// too.
    async fn sample_writes(&mut self, pressure: Pressure) {
        let begin = Instant::now();
        self.last_write_sample = Some(begin);
        let watched = &self.watched;
        let ids: Vec<SandboxId> = watched.registry.records().iter().map(|record| record.id.clone()).collect();
        let disk_uses = futures_util::stream::iter(ids).map(|id| async move {
            let used = watched.host.driver().disk_use(&id).await.unwrap_or_default();
            (id, used)
        });
        let found: Vec<_> = disk_uses.buffer_unordered(CONCURRENCY).collect().await;
        self.look_for_read_only_disks().await;
        self.write_sample_duration = begin.elapsed();
        self.occupied = found.iter().map(|(_, used)| used.allocated).sum();
        self.dirty = found.iter().map(|(_, used)| used.dirty).sum();
        let written = found.into_iter().map(|(id, used)| (id, used.allocated + used.dirty)).collect();
        let last = std::mem::replace(&mut self.written, written);
        match self.last_baseline {
            // The first write sample is the baseline: a daemon that starts on a full disk finds writers at the second one.
            None => self.baseline = self.written.clone(),
            Some(at) if pressure == Pressure::None && at.elapsed() >= WRITE_SAMPLE_INTERVAL => {
                self.baseline = last;
            }
            Some(_) => return,
        }
        self.last_baseline = Some(Instant::now());
    }

    /// Tells owners and the operator which disks have become read-only, and discards warm sandboxes with one. Without an answer the next
    /// sample looks again.
    async fn look_for_read_only_disks(&mut self) {
        let watched = &self.watched;
        let found: HashSet<_> = match watched.host.driver().with_read_only_disks().await {
            Ok(found) => found.into_iter().collect(),
            Err(error) => {
                if !std::mem::replace(&mut self.is_look_failing, true) {
                    tracing::warn!(%error, "could not look for disks that have become read-only");
                }
                return;
            }
        };
        self.is_look_failing = false;
        for sandbox in watched.warm_pool.take_of(&found) {
            tracing::warn!(id = %sandbox.spec.id, "discarded a warm sandbox, because its disk has become read-only");
            watched.provisioner.discard_in_background(sandbox);
            watched.warm_pool.request_refill();
        }
        let of_owners = found.into_iter().filter_map(|id| Some((watched.registry.find(&id)?, id)));
        let mut reported = HashSet::new();
        for (actor, id) in of_owners {
            if !self.read_only.contains(&id) {
                report_read_only_disk(&watched.stamped_store, &actor);
            }
            reported.insert(id);
        }
        self.read_only = reported;
    }

    /// Pauses the running sandboxes that have written since the baseline, starting with the one that wrote most.
    async fn pause_writers(&mut self, free: u64) {
        let mut writers: Vec<(u64, SandboxId, ActorHandle)> = Vec::new();
        for (id, written) in &self.written {
            // A sandbox that was created since then has no baseline.
            let before = self.baseline.get(id).copied().unwrap_or(0);
            let more = written.saturating_sub(before);
            let is_due = self.unrecorded_pauses.get(id).is_none_or(|failed| failed.elapsed() >= PAUSE_RETRY);
            let handle = self
                .watched
                .registry
                .find(id)
                .filter(|handle| handle.status.borrow().state() == SandboxState::Running);
            if let Some(handle) = handle.filter(|_| more >= WRITER_BYTES && is_due) {
                writers.push((more, id.clone(), handle));
            }
        }
        writers.sort_by_key(|(more, ..)| std::cmp::Reverse(*more));
        let context = PauseContext {
            free_mb: free / MB,
            reserve_mb: self.watch.disk_reserve_bytes / MB,
            unrecorded: &self.unrecorded_pauses,
        };
        let context = &context;
        let attempts = futures_util::stream::iter(writers).map(|(more, id, handle)| async move {
            let is_unrecorded = context.pause(&id, &handle, more).await;
            is_unrecorded.then(|| (id, Instant::now()))
        });
        let attempts: Vec<_> = attempts.buffer_unordered(CONCURRENCY).collect().await;
        self.unrecorded_pauses.extend(attempts.into_iter().flatten());
    }
}

/// The state of the disk for which sandboxes are paused.
struct PauseContext<'a> {
    free_mb: u64,
    reserve_mb: u64,
    /// Sandboxes whose pause could not be recorded before, which the log has.
    unrecorded: &'a HashMap<SandboxId, Instant>,
}

impl PauseContext<'_> {
    /// Pauses a sandbox. Returns whether that failed because the host lacks the space to record it.
    async fn pause(&self, id: &SandboxId, handle: &ActorHandle, written: u64) -> bool {
        let Self { free_mb, reserve_mb, unrecorded } = self;
        let account = &handle.status.borrow().record.account.clone();
        let pausing = handle.request(|reply| ActorRequest::Pause {
            reason: DISK_PRESSURE,
            processes: Processes::Kept,
            reply,
        });
        let attempt = match tokio::time::timeout(PAUSE_TIMEOUT, pausing).await {
            Ok(Err(EngineError::Host(HostError::Exhausted { .. }))) if unrecorded.contains_key(id) => {
                return true;
            }
            Ok(attempt) => attempt,
            Err(_) => {
                tracing::error!(%id, %account, free_mb, reserve_mb, "pausing a sandbox on an almost full disk timed out");
                return false;
            }
        };
        let Err(error) = attempt else {
            let written_mb = written / MB;
            tracing::warn!(
                %id, %account, written_mb, free_mb, reserve_mb,
                "paused a sandbox, because the disk of the host is almost full"
            );
            return false;
        };
        tracing::error!(%id, %account, %error, free_mb, reserve_mb, "could not pause a sandbox on an almost full disk");
        matches!(error, EngineError::Host(HostError::Exhausted { .. }))
    }
}

/// Tells the owner and the operator that the disk of a sandbox has become read-only.
fn report_read_only_disk(stamped_store: &StampedStore, actor: &ActorHandle) {
    let message = EngineError::Sandbox(SandboxError::ReadOnlyDisk).to_string();
    let record = Arc::clone(&actor.status.borrow().record);
    tracing::warn!(id = %record.id, account = %record.account, "{message}");
    let (at, data) = (stamped_store.now(), json!({ "message": message }));
    stamped_store.append(events::of_sandbox(&record, at, EventKind::SandboxError, data));
}

/// Frees the memory of the sandbox that has been paused longest, of those that have some to free. False if there is none.
async fn free_memory_of_one(registry: &SandboxRegistry) -> bool {
    let records = registry.records();
    let frozen = records.iter().filter(|record| record.lifecycle.process_state() == ProcessState::Frozen);
    let mut longest: Vec<_> = frozen.collect();
    longest.sort_by_key(|record| record.lifecycle.paused_since());
    for record in longest {
        let Some(actor) = registry.find(&record.id) else { continue };
        match actor.request(|reply| ActorRequest::FreeMemory { reply }).await {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) if error.prevents_hibernation() => {}
            Err(error) => {
                tracing::warn!(id = %record.id, %error, "could not free the memory of a paused sandbox");
            }
        }
    }
    false
}
