//! What the network refused becomes events.
//!
//! One task of the engine. It never holds anybody up: who refuses does not wait for it, and what there is too much of is counted
//! and not kept. A sandbox fills the store no faster than its share allows, however hard it tries.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use net::Refusal;
use serde_json::json;
use store::{Batch, NewEvent};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::shared::Shared;

/// Kept of one sandbox in a minute.
const PER_MINUTE: u32 = 30;
const MINUTE: Duration = Duration::from_secs(60);
/// Written together, and how long the first of them waits for others.
const TOGETHER: usize = 128;
const GATHER: Duration = Duration::from_millis(100);

pub fn start(shared: &Arc<Shared>, refusals: mpsc::Receiver<Refusal>) {
    let shared_by_task = Arc::clone(shared);
    shared.tasks.spawn(async move {
        let stopping = shared_by_task.stopping.clone();
        stopping.run_until_cancelled(run(&shared_by_task, refusals)).await;
    });
}

async fn run(shared: &Shared, mut refusals: mpsc::Receiver<Refusal>) {
    let mut shares = Shares::default();
    let mut heard = Vec::new();
    while refusals.recv_many(&mut heard, TOGETHER).await > 0 {
        let now = Instant::now();
        let events: Vec<NewEvent> =
            heard.drain(..).filter_map(|refusal| event(shared, &mut shares, now, refusal)).collect();
        if !events.is_empty() {
            let batch = events.into_iter().fold(Batch::new(), Batch::event);
            if let Err(error) = shared.store.commit(batch).await {
                tracing::error!(%error, "could not record what the network refused");
            }
        }
        // Bursts of different refusals come together: a commit for each would be a write to the disk for each.
        tokio::time::sleep(GATHER).await;
    }
}

fn event(shared: &Shared, shares: &mut Shares, now: Instant, refusal: Refusal) -> Option<NewEvent> {
    shared.counters.network_refusals.add(refusal.reason, refusal.count);
    // Of one that is over, or belongs to nobody yet, nobody will ask.
    let account = shared.find(&refusal.sandbox)?.status.borrow().record.account.clone();
    if !shares.take(&refusal.sandbox, now) {
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
    Some(NewEvent {
        sandbox: refusal.sandbox,
        account,
        at: shared.clock.now(),
        run: String::new(),
        kind: "network.refused".to_owned(),
        data,
        once: None,
    })
}

/// How many of each sandbox were kept in the present minute.
#[derive(Default)]
struct Shares {
    since: Option<Instant>,
    taken: HashMap<SandboxId, u32>,
}

impl Shares {
    fn take(&mut self, sandbox: &SandboxId, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.duration_since(since) >= MINUTE) {
            self.since = Some(now);
            self.taken.clear();
        }
        let taken = self.taken.entry(sandbox.clone()).or_default();
        *taken += 1;
        *taken <= PER_MINUTE
    }
}
