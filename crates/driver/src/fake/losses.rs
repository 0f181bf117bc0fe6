//! What happens to fake sandboxes without a call of the engine: their processes end, are killed, or lose their disk or their link.

use std::sync::Arc;

use api::SandboxId;

use super::{FakeDriver, Sandbox, State};
use crate::{DriverError, DriverStep};

impl Sandbox {
    pub(super) fn has_replaced_disk(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| !guest.is_on(&self.disk))
    }
}

impl State {
    pub(super) fn sandboxes_where(&self, is_meant: impl Fn(&Sandbox) -> bool) -> Vec<SandboxId> {
        let meant = self.sandboxes.iter().filter(|(_, sandbox)| is_meant(sandbox));
        meant.map(|(id, _)| id.clone()).collect()
    }

    pub(super) fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        if self.are_disk_looks_failing {
            return Err(DriverError::failed(DriverStep::FindReadOnlyDisks, "made to fail by a test"));
        }
        Ok(self.sandboxes_where(|sandbox| sandbox.is_disk_read_only))
    }
}

impl FakeDriver {
    /// Ends all processes of the sandbox, as a crash does.
    pub fn crash(&self, id: &SandboxId) {
        if let Some(sandbox) = self.host.state().sandboxes.get_mut(id) {
            sandbox.guest = None;
        }
    }

    /// Counts a process as killed for lack of memory, at the limit of the sandbox. The test ends the process.
    pub fn kill_for_memory(&self, id: &SandboxId) {
        if let Some(sandbox) = self.host.state().sandboxes.get_mut(id) {
            sandbox.memory_kills.count += 1;
            sandbox.memory_kills.has_reached_limit = true;
        }
    }

    /// Gives the sandbox an empty disk, as a restore of the data directory does. Its processes keep the one that they use.
    pub fn replace_disk(&self, id: &SandboxId) {
        if let Some(sandbox) = self.host.state().sandboxes.get_mut(id) {
            sandbox.disk = Arc::default();
        }
    }

    /// Removes the sandbox with its disk, as if it had been terminated after the backup that a database is restored from.
    pub fn lose_disk(&self, id: &SandboxId) {
        self.host.state().sandboxes.remove(id);
    }

    /// Makes the disk of the sandbox read-only, as a full disk of the host does.
    pub fn make_disk_read_only(&self, id: &SandboxId) {
        if let Some(sandbox) = self.host.state().sandboxes.get_mut(id) {
            sandbox.is_disk_read_only = true;
        }
    }

    /// Makes all looks for read-only disks fail from now on.
    pub fn fail_looks_for_read_only_disks(&self) {
        self.host.state().are_disk_looks_failing = true;
    }

    /// Ends the processes of all sandboxes, as a reboot of the host does.
    pub fn reboot(&self) {
        self.host.state().sandboxes.values_mut().for_each(|sandbox| sandbox.guest = None);
    }

    /// Makes the agent close its link. It accepts another one.
    pub fn hang_up(&self, id: &SandboxId) {
        if let Some(guest) = self.host.state().sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
            guest.hang_up();
        }
    }
}
