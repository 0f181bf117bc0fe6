//! What the network refused becomes events.
//!
//! One task of the engine. It never holds anybody up: who refuses does not wait for it, and what there is too much of is counted
//! and told by number. A sandbox fills the store no faster than its shares allow, however hard it tries; each reason has a share of
//! its own, so that no flood of one hides what another has to say.

use std::collections::HashMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use net::{Reason, Refusal};
use serde_json::{Value, json};
use store::{Batch, NewEvent};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::shared::Shared;

/// Kept of one sandbox and one reason in a minute.
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
    loop {
        tokio::select! {
            count = refusals.recv_many(&mut heard, TOGETHER) => if count == 0 { return },
            () = shares.over() => {}
        }
        let now = Instant::now();
        let rests = shares.turn(now).into_iter().map(|(key, rest)| rest_event(shared, key, rest));
        let mut events: Vec<NewEvent> = rests.collect();
        events.extend(heard.drain(..).filter_map(|refusal| event(shared, &mut shares, now, refusal)));
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
    if !shares.take(&refusal, &account, now) {
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
    Some(new_event(shared, refusal.sandbox, account, data))
}

/// What stands for all that had no share left. Told also of a sandbox that is over by now: its refusals were counted while it ran.
fn rest_event(shared: &Shared, (sandbox, reason): Key, rest: Rest) -> NewEvent {
    let data = json!({
        "port": 0,
        "protocol": "any",
        "reason": reason.code(),
        "message": format!("{reason}; {} more like it, which are not told one by one", rest.kinds),
        "count": rest.count,
        "omitted": rest.kinds,
    });
    new_event(shared, sandbox, rest.account, data)
}

fn new_event(shared: &Shared, sandbox: SandboxId, account: String, data: Value) -> NewEvent {
    NewEvent {
        sandbox,
        account,
        at: shared.clock.now(),
        run: String::new(),
        kind: "network.refused".to_owned(),
        data,
        once: None,
    }
}

type Key = (SandboxId, Reason);

/// What was kept and left out in the present minute.
#[derive(Default)]
struct Shares {
    since: Option<Instant>,
    taken: HashMap<Key, u32>,
    left_out: HashMap<Key, Rest>,
}

/// What was left out of one sandbox for one reason.
struct Rest {
    account: String,
    /// Refusals that would have been an event each, and how often they happened.
    kinds: u64,
    count: u64,
}

impl Shares {
    /// Whether there is a share for this one. If not, it is left out.
    fn take(&mut self, refusal: &Refusal, account: &str, now: Instant) -> bool {
        self.since.get_or_insert(now);
        let key = (refusal.sandbox.clone(), refusal.reason);
        let taken = self.taken.entry(key.clone()).or_default();
        if *taken < PER_MINUTE {
            *taken += 1;
            return true;
        }
        let rest = self.left_out.entry(key).or_insert_with(|| Rest {
            account: account.to_owned(),
            kinds: 0,
            count: 0,
        });
        rest.kinds += 1;
        rest.count += refusal.count;
        false
    }

    /// Waits for the end of the minute, if there will be something to tell.
    async fn over(&self) {
        match self.since {
            Some(since) if !self.left_out.is_empty() => sleep_until(since + MINUTE).await,
            _ => pending().await,
        }
    }

    /// Begins another minute if this one is over. Gives what was left out of it.
    fn turn(&mut self, now: Instant) -> HashMap<Key, Rest> {
        if self.since.is_none_or(|since| now.duration_since(since) < MINUTE) {
            return HashMap::new();
        }
        std::mem::take(self).left_out
    }
}
