//! Records what the network refused as events.
//!
//! Runs as a task of the engine. The network does not wait for it. Refusals beyond a rate limit are not recorded one by one but as
//! a count, so that a sandbox cannot fill the store. The limit is separate for each sandbox and reason, so that a flood of
//! refusals for one reason does not suppress the others.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId};
use net::{Reason, Refusal};
use serde_json::{Value, json};
use store::{Batch, NewEvent};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::counters::Counters;
use crate::record::stamped_store::StampedStore;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// Events of one sandbox and one reason per minute.
const PER_MINUTE: u32 = 30;
const MINUTE: Duration = Duration::from_secs(60);
/// The number of refusals in one commit, and how long the first of them waits for others.
const BATCH: usize = 128;
const GATHER: Duration = Duration::from_millis(100);

/// Records refusals of sandboxes that have an owner.
pub struct Recorder {
    stamped_store: StampedStore,
    registry: Arc<SandboxRegistry>,
    counters: Arc<Counters>,
}

impl Recorder {
    pub fn new(stamped_store: StampedStore, registry: Arc<SandboxRegistry>, counters: Arc<Counters>) -> Self {
        Self { stamped_store, registry, counters }
    }

    pub fn start(self, refusals: mpsc::Receiver<Refusal>, tasks: &Tasks) {
        tasks.spawn_until_stopped(async move { self.run(refusals).await });
    }

    async fn run(&self, mut refusals: mpsc::Receiver<Refusal>) {
        let mut quotas = EventQuotas::default();
        let mut received = Vec::new();
        loop {
            tokio::select! {
                count = refusals.recv_many(&mut received, BATCH) => if count == 0 { return },
                () = quotas.minute_end() => {}
            }
            let now = Instant::now();
            let suppressed = quotas
                .next_minute(now)
                .into_iter()
                .map(|(key, suppressed)| self.suppressed_event(key, suppressed));
            let mut events: Vec<NewEvent> = suppressed.collect();
            events.extend(received.drain(..).filter_map(|refusal| self.event(&mut quotas, now, refusal)));
            if !events.is_empty() {
                let batch = events.into_iter().fold(Batch::new(), Batch::event);
                if let Err(error) = self.stamped_store.commit(batch).await {
                    tracing::error!(%error, "could not record refusals of the network");
                }
            }
            // Collects bursts, because each commit costs a write to the disk.
            tokio::time::sleep(GATHER).await;
        }
    }

    fn event(&self, quotas: &mut EventQuotas, now: Instant, refusal: Refusal) -> Option<NewEvent> {
        self.counters.network_refusals.add(refusal.reason, refusal.count);
        // A sandbox without an account, such as a warm or a terminated one, gets no event.
        let account = self.registry.find(&refusal.sandbox)?.status.borrow().record.account.clone();
        if !quotas.take(&refusal, &account, now) {
            return None;
        }
        let (target, reason) = (refusal.target, refusal.reason);
        let mut data = json!({
            "port": target.port,
            "protocol": target.transport.to_string(),
            "reason": reason.code(),
            "message": reason.to_string(),
            "count": refusal.count,
        });
        if let Some(name) = target.name {
            data["name"] = json!(name);
        }
        if let Some(address) = target.address {
            data["address"] = json!(address);
        }
        Some(self.new_event(refusal.sandbox, account, data))
    }

    /// The event that stands for all suppressed refusals. Also recorded for a sandbox that has ended since.
    fn suppressed_event(&self, (sandbox, reason): Key, suppressed: Suppressed) -> NewEvent {
        let data = json!({
            "port": 0,
            "protocol": "any",
            "reason": reason.code(),
            "message": format!("{reason}; {} more like it, not listed one by one", suppressed.kinds),
            "count": suppressed.count,
            "omitted": suppressed.kinds,
        });
        self.new_event(sandbox, suppressed.account, data)
    }

    fn new_event(&self, sandbox: SandboxId, account: String, data: Value) -> NewEvent {
        NewEvent {
            sandbox,
            account,
            at: self.stamped_store.now(),
            run: String::new(),
            kind: EventKind::NetworkRefused,
            data,
            once: None,
        }
    }
}

type Key = (SandboxId, Reason);

/// What was recorded and suppressed in the current minute.
#[derive(Default)]
struct EventQuotas {
    since: Option<Instant>,
    recorded: HashMap<Key, u32>,
    suppressed: HashMap<Key, Suppressed>,
}

/// Suppressed refusals of one sandbox for one reason.
struct Suppressed {
    account: String,
    /// Suppressed events, and the refusals that they stand for.
    kinds: u64,
    count: u64,
}

impl EventQuotas {
    /// Takes one event from the quota. If the quota is used up, the refusal is counted as suppressed.
    fn take(&mut self, refusal: &Refusal, account: &str, now: Instant) -> bool {
        self.since.get_or_insert(now);
        let key = (refusal.sandbox.clone(), refusal.reason);
        let count = self.recorded.entry(key.clone()).or_default();
        if *count < PER_MINUTE {
            *count += 1;
            return true;
        }
        let suppressed = self.suppressed.entry(key).or_insert_with(|| Suppressed {
            account: account.to_owned(),
            kinds: 0,
            count: 0,
        });
        suppressed.kinds += 1;
        suppressed.count += refusal.count;
        false
    }

    /// Waits for the end of the minute, if refusals were suppressed in it.
    async fn minute_end(&self) {
        match self.since {
            Some(since) if !self.suppressed.is_empty() => sleep_until(since + MINUTE).await,
            _ => pending().await,
        }
    }

    /// Starts another minute if the current one has ended. Returns what was suppressed in it.
    fn next_minute(&mut self, now: Instant) -> HashMap<Key, Suppressed> {
        if self.since.is_none_or(|since| now.duration_since(since) < MINUTE) {
            return HashMap::new();
        }
        std::mem::take(self).suppressed
    }
}
