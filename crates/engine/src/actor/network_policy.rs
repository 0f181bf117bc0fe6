//! Changes of a sandbox's network policy. Ports that the new policy forbids are closed.
//!
//! A policy is enforced first and recorded then, so that no caller sees a recorded policy that is not enforced. If the record cannot
//! be committed, the old policy is enforced again; the actor retries until that succeeds. After a crash of the daemon the
//! recovery enforces the recorded policy.

use std::time::Duration;

use api::EventKind;
use rules::{NetworkChange, Operation, decide};
use serde_json::json;
use store::NewEvent;

use super::ports::close_forbidden;
use super::{Actor, ProcessState, event};
use crate::error::EngineError;
use crate::host::guest;
use crate::status::Status;

pub(super) const RETRY: Duration = Duration::from_millis(500);

impl Actor {
    pub(super) async fn change_network(&mut self, change: NetworkChange) -> Result<Status, EngineError> {
        decide(self.record.state, Operation::Network)?;
        let before = &self.record.config.network;
        let policy = change.of(before);
        if policy == *before {
            return Ok(self.status.borrow().clone());
        }
        let is_other_egress = policy.egress != before.egress;
        // A sandbox without processes has no traffic. Its next start enforces the recorded policy.
        if is_other_egress && !matches!(self.processes, ProcessState::Stopped) {
            let network = self.context.host.network();
            if let Err(error) = network.apply(&guest(&self.record), &policy.egress).await {
                self.reapply_policy().await;
                return Err(error.into());
            }
        }
        let mut data = json!({ "egress": policy.egress });
        if let Some(ingress) = &policy.ingress {
            data["ingress"] = json!(ingress);
        }
        let mut next = (*self.record).clone();
        next.config.network = policy;
        let now = self.context.stamped_store.now();
        let mut events = vec![NewEvent { at: now, ..event(&next, EventKind::NetworkChanged, data) }];
        events.extend(close_forbidden(&mut next, now));
        if let Err(error) = self.commit_events(next, events, now).await {
            if is_other_egress {
                self.reapply_policy().await;
            }
            return Err(error.into());
        }
        self.policy_pending = false;
        Ok(self.status.borrow().clone())
    }

    /// Enforces the recorded policy. If that fails, the actor tries again later.
    pub(super) async fn reapply_policy(&mut self) {
        if matches!(self.processes, ProcessState::Stopped) {
            self.policy_pending = false;
            return;
        }
        let network = self.context.host.network();
        let applied = network.apply(&guest(&self.record), &self.record.config.network.egress).await;
        if let Err(error) = &applied {
            tracing::error!(id = %self.id(), %error, "could not enforce a recorded network policy; retrying");
        }
        self.policy_pending = applied.is_err();
    }
}
