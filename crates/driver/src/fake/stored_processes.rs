//! Stored processes of fake sandboxes.

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;

use super::agent::Guest;
use super::{DriverOp, FakeDriver, STORED_BYTES, State, invalid_state};
use crate::{DriverError, DriverStep, MemoryKills, NetworkHook, SandboxSpec, StoredProcesses};

#[async_trait]
impl StoredProcesses for FakeDriver {
    fn can_store_processes(&self, isolation: Isolation) -> bool {
        isolation == Isolation::Gvisor
    }

    async fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let work = |state: &mut State| match state.sandboxes.get_mut(id) {
            Some(sandbox) if sandbox.isolation == Isolation::Container => {
                Err(DriverError::failed(DriverStep::StoreProcesses, "a container cannot"))
            }
            Some(sandbox) if sandbox.guest.is_some() => {
                sandbox.memory = sandbox.guest.take().map(Guest::store);
                sandbox.is_memory_used = false;
                Ok(STORED_BYTES)
            }
            _ => invalid_state(id, state.presence(id), "hibernate"),
        };
        self.host.call(DriverOp::Hibernate, id, work).await
    }

    async fn wake(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(&spec.id);
            let Some(sandbox) = state.sandboxes.get_mut(&spec.id) else {
                return invalid_state(&spec.id, presence, "wake");
            };
            let Some(memory) = sandbox.memory.as_ref().filter(|_| sandbox.guest.is_none()) else {
                return invalid_state(&spec.id, presence, "wake");
            };
            sandbox.limits = Some(spec.limits);
            sandbox.guest = Some(memory.continued());
            sandbox.is_memory_used = true;
            sandbox.memory_kills = MemoryKills::default();
            Ok(())
        };
        let woken = self.host.call(DriverOp::Wake, &spec.id, work).await;
        woken.and(self.connect_network(&spec.id, network))
    }

    async fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.memory = None;
            }
            Ok(())
        };
        self.host.call(DriverOp::DiscardMemory, id, work).await
    }

    async fn discard_snapshot_processes(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        if let Some((_, Some(content))) = self.host.state().snapshots.get_mut(snapshot) {
            content.discard_processes();
        }
        Ok(())
    }
}
