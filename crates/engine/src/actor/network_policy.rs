//! Changes of a sandbox's network policy. Ports that the new policy forbids are closed.
//!
//! A policy is enforced first and recorded then, so that no caller sees a recorded policy that is not enforced. If the record cannot
//! be committed, the old policy is enforced again; the actor retries until that succeeds. After a crash of the daemon the
//! recovery enforces the recorded policy.

use std::time::Duration;

use api::{EgressPolicy, EventKind, NetworkPolicy};
use rules::{NetworkChange, Operation, TimeMs, decide};
use serde_json::json;
use store::{NewEvent, SandboxRecord};

use super::Actor;
use super::ports::close_forbidden;
use crate::error::EngineError;
use crate::host::{Host, guest};
use crate::record::events;
use crate::record::status::Status;

/// The delay before a policy that could not be enforced is enforced again.
pub(super) const RETRY: Duration = Duration::from_millis(500);

/// Changes the network policy, paused or not.
pub(super) async fn change_network(actor: &mut Actor, change: NetworkChange) -> Result<Status, EngineError> {
    decide(actor.record.state(), Operation::Network)?;
    let before = &actor.record.config.network;
    let policy = change.of(before);
    if policy == *before {
        return Ok(actor.status.borrow().clone());
    }
    let is_other_egress = policy.egress != before.egress;
    if is_other_egress && actor.processes.are_in_memory() {
        actor.policy.replace(&actor.context.host, &actor.record, &policy.egress).await?;
    }
    let now = actor.context.stamped_store.now();
    let (next, events) = changed(&actor.record, policy, now);
    if let Err(error) = actor.commit_events(next, events, now).await {
        if is_other_egress {
            restore_policy(actor).await;
        }
        return Err(error.into());
    }
    if is_other_egress {
        actor.policy.settle();
    }
    Ok(actor.status.borrow().clone())
}

/// Enforces the recorded policy again.
pub(super) async fn restore_policy(actor: &mut Actor) {
    if actor.processes.are_in_memory() {
        actor.policy.restore(&actor.context.host, &actor.record).await;
    } else {
        actor.policy.settle();
    }
}

/// The next record with another policy, and the events.
fn changed(record: &SandboxRecord, policy: NetworkPolicy, at: TimeMs) -> (SandboxRecord, Vec<NewEvent>) {
    let mut data = json!({ "egress": policy.egress });
    if let Some(ingress) = &policy.ingress {
        data["ingress"] = json!(ingress);
    }
    let mut next = record.clone();
    next.config.network = policy;
    let mut events = vec![events::of_sandbox(&next, at, EventKind::NetworkChanged, data)];
    events.extend(close_forbidden(&mut next, at));
    (next, events)
}

/// Enforces policies for a sandbox with processes. One without has no traffic; its next start enforces the recorded policy.
#[derive(Debug, Default)]
pub(super) struct PolicyEnforcement {
    is_pending: bool,
}

impl PolicyEnforcement {
    /// Whether the enforced policy may differ from the recorded one. The actor retries until they agree.
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// The enforced policy is recorded now, or the sandbox has no processes.
    pub fn settle(&mut self) {
        self.is_pending = false;
    }

    /// Enforces a policy that is not recorded yet. If that fails, the recorded one is enforced again.
    pub async fn replace(
        &mut self,
        host: &Host,
        record: &SandboxRecord,
        egress: &EgressPolicy,
    ) -> Result<(), EngineError> {
        if let Err(error) = host.network().apply(&guest(record), egress).await {
            self.restore(host, record).await;
            return Err(error.into());
        }
        Ok(())
    }

    /// Enforces the recorded policy. If that fails, it stays pending.
    pub async fn restore(&mut self, host: &Host, record: &SandboxRecord) {
        let applied = host.network().apply(&guest(record), &record.config.network.egress).await;
        if let Err(error) = &applied {
            tracing::error!(id = %record.id, %error, "could not enforce a recorded network policy; retrying");
        }
        self.is_pending = applied.is_err();
    }
}
