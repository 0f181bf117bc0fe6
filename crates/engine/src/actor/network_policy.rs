//! Another network policy for a sandbox that lives. It closes the ports that it does not let be exposed.
//!
//! In force first and recorded then, so that nobody hears of a policy that does not hold. Where the record cannot be written the
//! old policy is put back; where that fails too it is tried until it holds, and a death of the daemon ends the same way, for
//! recovery goes by the records.

use std::time::Duration;

use rules::{NetworkChange, Operation, decide};
use serde_json::json;
use store::NewEvent;

use super::ports::close_forbidden;
use super::{Actor, ProcessState, event};
use crate::error::EngineError;
use crate::network::guest;
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
        // Without processes there is nothing to hold back; its next start goes by its record.
        if is_other_egress && !matches!(self.phase, ProcessState::Stopped) {
            let applied = self.shared.network.apply(&guest(&self.record), &policy.egress).await;
            if let Err(error) = applied {
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
        let now = self.shared.clock.now();
        let mut events = vec![NewEvent { at: now, ..event(&next, "network.changed", data) }];
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

    /// Puts the recorded policy in force, or sees to it that this is tried again.
    pub(super) async fn reapply_policy(&mut self) {
        if matches!(self.phase, ProcessState::Stopped) {
            self.policy_pending = false;
            return;
        }
        let applied =
            self.shared.network.apply(&guest(&self.record), &self.record.config.network.egress).await;
        if let Err(error) = &applied {
            tracing::error!(id = %self.id(), %error, "a recorded network policy could not be put in force; trying again");
        }
        self.policy_pending = applied.is_err();
    }
}
