//! Resource samples: what each running sandbox uses, sampled at an interval and kept in memory.
//!
//! One task of the engine reads the counters of all running sandboxes, one after the other. Paused sandboxes are not sampled;
//! their earlier samples stay. A sample that fails is skipped. A restart of the daemon loses the samples.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::{SandboxId, SandboxState};
use base::IgnorePoison;
use driver::ResourceUse;
use rules::{SampleQuery, TimeMs};
use tokio::time::Instant;

use crate::background::memory_kills::SeenKills;
use crate::counters::Counters;
use crate::host::Host;
use crate::record::stamped_store::StampedStore;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// Samples of one sandbox: an hour at an interval of 5 s. The oldest are dropped first.
const SAMPLES_MAX: usize = 720;
/// A round waits at least this many times as long as the round before took, so that sampling uses at most a twentieth of one CPU.
const ROUND_SHARE: u32 = 20;

/// What a sandbox used at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResourceSample {
    pub at: TimeMs,
    /// CPU time since the sample before, in percent of one CPU.
    pub cpu_percent: f64,
    /// Without the page cache.
    pub memory_used: u64,
    pub memory_cache: u64,
    pub disk_used: u64,
}

/// A sample in 24 bytes: a thousand sandboxes have 720,000.
#[derive(Debug, Clone, Copy)]
struct Packed {
    at: TimeMs,
    cpu_percent: f32,
    memory_kib: u32,
    cache_kib: u32,
    disk_kib: u32,
}

#[derive(Debug, Default)]
struct Ring {
    samples: VecDeque<Packed>,
    /// The CPU time at the last reading, if the sandbox has run since.
    last: Option<(Instant, u64)>,
}

/// The samples of all sandboxes.
#[derive(Debug, Default)]
pub struct ResourceSamples(Mutex<HashMap<SandboxId, Ring>>);

impl ResourceSamples {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Ring>> {
        // A panic while the lock is held leaves valid rings.
        self.0.lock().ignore_poison()
    }

    /// The samples of a sandbox, oldest first.
    pub fn of(&self, id: &SandboxId, query: SampleQuery) -> Vec<ResourceSample> {
        let rings = self.lock();
        let samples = rings.get(id).map(|ring| ring.samples.iter()).into_iter().flatten();
        samples
            .filter(|sample| query.start.is_none_or(|start| sample.at >= start))
            .filter(|sample| query.end.is_none_or(|end| sample.at <= end))
            .map(Packed::unpack)
            .collect()
    }

    /// The first reading of a run only starts the interval of the CPU time.
    fn add(&self, id: &SandboxId, used: ResourceUse, at: TimeMs, now: Instant) {
        let mut rings = self.lock();
        let ring = rings.entry(id.clone()).or_default();
        let Some((before, cpu_us)) = ring.last.replace((now, used.cpu_us)) else { return };
        let elapsed_us = now.duration_since(before).as_micros().max(1);
        let cpu_us = used.cpu_us.saturating_sub(cpu_us);
        if ring.samples.len() >= SAMPLES_MAX {
            ring.samples.pop_front();
        }
        ring.samples.push_back(Packed {
            at,
            cpu_percent: (cpu_us as f64 * 100.0 / elapsed_us as f64) as f32,
            memory_kib: kib(used.memory.saturating_sub(used.memory_cache)),
            cache_kib: kib(used.memory_cache),
            disk_kib: kib(used.disk),
        });
    }

    /// The sandbox does not run.
    fn interrupt(&self, id: &SandboxId) {
        if let Some(ring) = self.lock().get_mut(id) {
            ring.last = None;
        }
    }

    fn retain(&self, is_living: impl Fn(&SandboxId) -> bool) {
        self.lock().retain(|id, _| is_living(id));
    }
}

impl Packed {
    fn unpack(&self) -> ResourceSample {
        ResourceSample {
            at: self.at,
            cpu_percent: self.cpu_percent.into(),
            memory_used: u64::from(self.memory_kib) << 10,
            memory_cache: u64::from(self.cache_kib) << 10,
            disk_used: u64::from(self.disk_kib) << 10,
        }
    }
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes >> 10).unwrap_or(u32::MAX)
}

/// The task that takes the samples.
pub struct Sampler {
    pub samples: Arc<ResourceSamples>,
    pub registry: Arc<SandboxRegistry>,
    pub host: Arc<Host>,
    pub stamped_store: StampedStore,
    pub counters: Arc<Counters>,
    pub tasks: Tasks,
}

impl Sampler {
    /// Samples until the engine stops.
    pub fn start(self, interval: Duration) {
        self.tasks.clone().spawn(async move {
            let (mut wait, mut kills) = (interval, SeenKills::default());
            while self.tasks.until_stopped(tokio::time::sleep(wait)).await.is_some() {
                let begin = Instant::now();
                if self.tasks.until_stopped(self.sample_all(&mut kills)).await.is_none() {
                    return;
                }
                let took = begin.elapsed();
                wait = interval.saturating_sub(took).max(took * ROUND_SHARE);
            }
        });
    }

    async fn sample_all(&self, kills: &mut SeenKills) {
        for record in self.registry.records() {
            let is_running = record.state() == SandboxState::Running;
            // At first also those of paused sandboxes: after a resume they would be counted again.
            if (is_running || !kills.has_baseline())
                && let Some(killed) = self.host.driver().memory_kills(&record.id).await
            {
                kills.note(&record, killed, &self.counters);
            }
            if !is_running {
                self.samples.interrupt(&record.id);
                continue;
            }
            match self.host.driver().resource_use(&record.id).await {
                Ok(Some(used)) => {
                    self.samples.add(&record.id, used, self.stamped_store.now(), Instant::now());
                }
                // It has been paused or terminated meanwhile.
                Ok(None) => self.samples.interrupt(&record.id),
                Err(error) => tracing::debug!(id = %record.id, %error, "could not sample a sandbox"),
            }
        }
        self.samples.retain(|id| self.registry.find(id).is_some());
        kills.retain(|id| self.registry.find(id).is_some());
    }
}
