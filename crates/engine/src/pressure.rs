//! The host watcher: samples how much disk and memory the host really has left.
//!
//! Below the low watermark of the disk it pauses the sandboxes that are writing and the ledger refuses creates, resumes and
//! uploads; above the high one they are admitted again. Records, journal and logs share the file system with the sandboxes' disks:
//! the reserve keeps commits from failing. The watcher also sets how much disk may be promised.
//!
//! One task of the engine owns it. A sample that fails is logged and changes nothing.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::{SandboxId, SandboxState};
use futures_util::StreamExt;
use rules::{Pressure, Shortage, Watermarks, free_after_writeback, promisable_disk_mb};
use tokio::time::Instant;

use crate::actor::DISK_PRESSURE;
use crate::host_watch::HostWatch;
use crate::mailbox::{ActorHandle, ActorRequest};
use crate::services::Services;

const MB: u64 = 1 << 20;
/// Between two looks at what every sandbox has written, without pressure.
const CENSUS_EVERY: Duration = Duration::from_secs(5);
/// The same while the disk is short or may soon be: writers are found and paused.
const CENSUS_UNDER_PRESSURE: Duration = Duration::from_millis(200);
/// A sandbox that wrote less since the last but one census is not a writer. More than an empty disk occupies.
const WRITER_BYTES: u64 = 4 * MB;
const AT_ONCE: usize = 32;
const PAUSE_PATIENCE: Duration = Duration::from_secs(10);

/// Samples once, so that nothing is admitted before, and then until the engine stops.
pub async fn start(services: &Arc<Services>, watch: HostWatch) {
    let mut watcher = Watcher {
        services: Arc::clone(services),
        marks: Watermarks::of_reserve(watch.disk_reserve_bytes),
        watch,
        // Until the first sample. Between the marks a new daemon refuses as the one before it did.
        pressure: Pressure::Low,
        occupied: 0,
        dirty: 0,
        last_census: None,
        last_baseline: None,
        written: HashMap::new(),
        written_before: HashMap::new(),
        is_failing: false,
    };
    let mut wait = watcher.look().await;
    let tasks = services.tasks.clone();
    services.tasks.spawn(async move {
        while tasks.until_stopped(tokio::time::sleep(wait)).await.is_some() {
            wait = watcher.look().await;
        }
    });
}

struct Watcher {
    services: Arc<Services>,
    watch: HostWatch,
    marks: Watermarks,
    pressure: Pressure,
    /// Bytes that all disks of sandboxes occupy.
    occupied: u64,
    /// Bytes that all sandboxes have in the page cache and not on a disk yet.
    dirty: u64,
    last_census: Option<Instant>,
    last_baseline: Option<Instant>,
    /// What each sandbox had written at the last census, and at the baseline: a census at least [`CENSUS_EVERY`] before.
    written: HashMap<SandboxId, u64>,
    written_before: HashMap<SandboxId, u64>,
    is_failing: bool,
}

impl Watcher {
    /// Samples, decides and acts. Returns how long to wait until the next time.
    async fn look(&mut self) -> Duration {
        let sample = match tokio::task::spawn_blocking({
            let sample = Arc::clone(&self.watch.sample);
            move || sample()
        })
        .await
        {
            Ok(Ok(sample)) => sample,
            Ok(Err(error)) => return self.failed(&error),
            Err(error) => return self.failed(&error),
        };
        self.is_failing = false;
        let is_first = self.last_census.is_none();
        let before = self.pressure;
        let is_close = self.marks.is_close(sample.disk_free_bytes, sample.unwritten_bytes);
        let every = if is_close || before == Pressure::Low { CENSUS_UNDER_PRESSURE } else { CENSUS_EVERY };
        if self.last_census.is_none_or(|last| last.elapsed() >= every) {
            self.census(before).await;
        }
        let free = free_after_writeback(sample.disk_free_bytes, sample.unwritten_bytes, self.dirty);
        self.pressure = self.marks.next(before, free);
        let is_low = self.pressure == Pressure::Low;
        let changed = before != self.pressure;
        self.watch.saw(free, is_low);
        self.publish(free, sample.memory_available_bytes);
        if changed != is_first {
            self.report(free);
        }
        if is_low {
            // Only while it is really low: between the marks, what runs may go on.
            if free < self.marks.low {
                self.pause_writers().await;
            }
            return CENSUS_UNDER_PRESSURE;
        }
        Duration::from_millis(self.marks.sample_again_ms(free))
    }

    fn failed(&mut self, error: &dyn fmt::Display) -> Duration {
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, "cannot sample the free disk and memory of the host; keeping the last decision");
        }
        CENSUS_EVERY
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
            promisable_disk_mb(free, self.occupied, self.watch.disk_reserve_bytes, self.watch.disk_most_mb);
        self.services.ledger.set_disk(promisable, self.watch.disk_overcommit);
        self.services.ledger.set_shortages(disk, memory);
    }

    fn report(&self, free: u64) {
        let (free_mb, reserve_mb) = (free / MB, self.watch.disk_reserve_bytes / MB);
        match self.pressure {
            Pressure::Low => tracing::warn!(
                free_mb,
                reserve_mb,
                "the disk is almost full: pausing sandboxes that write, refusing creates, resumes and uploads"
            ),
            Pressure::None => tracing::info!(free_mb, reserve_mb, "the disk has space again"),
        }
    }

    /// Looks at what every sandbox has written. Under pressure the baseline stays, so that slow writers are found too.
    async fn census(&mut self, pressure: Pressure) {
        self.last_census = Some(Instant::now());
        let services = &self.services;
        let ids: Vec<SandboxId> =
            services.registry.records().iter().map(|record| record.id.clone()).collect();
        let looks = futures_util::stream::iter(ids).map(|id| async move {
            let used = services.host.driver().disk_use(&id).await.unwrap_or_default();
            (id, used)
        });
        let found: Vec<_> = looks.buffer_unordered(AT_ONCE).collect().await;
        self.occupied = found.iter().map(|(_, used)| used.allocated).sum();
        self.dirty = found.iter().map(|(_, used)| used.dirty).sum();
        let written = found.into_iter().map(|(id, used)| (id, used.allocated + used.dirty)).collect();
        let last = std::mem::replace(&mut self.written, written);
        match self.last_baseline {
            // A daemon that starts on a full disk does not know who writes until the next census.
            None => self.written_before = self.written.clone(),
            Some(at) if pressure == Pressure::None && at.elapsed() >= CENSUS_EVERY => {
                self.written_before = last;
            }
            Some(_) => return,
        }
        self.last_baseline = Some(Instant::now());
    }

    /// Pauses every running sandbox that has written, the one that wrote most first.
    async fn pause_writers(&mut self) {
        let mut writers: Vec<(u64, SandboxId, ActorHandle)> = Vec::new();
        for (id, written) in &self.written {
            // A sandbox that is new since then has written all it has.
            let before = self.written_before.get(id).copied().unwrap_or(0);
            let more = written.saturating_sub(before);
            let handle = self
                .services
                .registry
                .find(id)
                .filter(|handle| handle.status.borrow().state() == SandboxState::Running);
            if let Some(handle) = handle.filter(|_| more >= WRITER_BYTES) {
                writers.push((more, id.clone(), handle));
            }
        }
        writers.sort_by_key(|(more, ..)| std::cmp::Reverse(*more));
        futures_util::stream::iter(writers)
            .for_each_concurrent(AT_ONCE, async |(more, id, handle)| {
                let asked = handle.request(|reply| ActorRequest::Pause { reason: DISK_PRESSURE, reply });
                match tokio::time::timeout(PAUSE_PATIENCE, asked).await {
                    Ok(Ok(_)) => {
                        tracing::warn!(%id, written_mb = more / MB, "paused a sandbox that wrote while the disk is almost full");
                    }
                    Ok(Err(error)) => tracing::error!(%id, %error, "could not pause a sandbox that fills the disk"),
                    Err(_) => tracing::error!(%id, "a sandbox that fills the disk does not pause"),
                }
            })
            .await;
    }
}
