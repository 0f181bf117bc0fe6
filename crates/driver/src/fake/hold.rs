//! Operations of the fake driver that wait, as long as a test holds them.

use std::sync::Arc;

use api::SandboxId;

use super::{DriverOp, FakeDriver, Host};

/// A held operation, of one sandbox or of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldOp {
    op: DriverOp,
    of: Option<SandboxId>,
}

impl HeldOp {
    /// Whether a call waits.
    pub(super) fn is(&self, op: DriverOp, id: &SandboxId) -> bool {
        self.op == op && self.of.as_ref().is_none_or(|of| of == id)
    }
}

/// Makes an operation wait until it is dropped. See [`FakeDriver::hold`].
pub struct HoldGuard {
    host: Arc<Host>,
    held: HeldOp,
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        self.host.held_ops.send_modify(|held_ops| {
            if let Some(index) = held_ops.iter().position(|held| *held == self.held) {
                held_ops.remove(index);
            }
        });
    }
}

impl FakeDriver {
    /// Makes calls of the operation wait until the returned guard is dropped.
    pub fn hold(&self, op: DriverOp) -> HoldGuard {
        self.hold_all(HeldOp { op, of: None })
    }

    /// As [`Self::hold`], for the calls of one sandbox.
    pub fn hold_for(&self, op: DriverOp, id: &SandboxId) -> HoldGuard {
        self.hold_all(HeldOp { op, of: Some(id.clone()) })
    }

    fn hold_all(&self, held: HeldOp) -> HoldGuard {
        self.host.held_ops.send_modify(|held_ops| held_ops.push(held.clone()));
        HoldGuard { host: Arc::clone(&self.host), held }
    }
}
