//! Fake sandboxes: their processes and what they use.

use std::os::fd::AsFd;
use std::sync::Arc;

use api::SandboxId;
use async_trait::async_trait;

use super::agent::Guest;
use super::{DriverOp, FakeDriver, State, invalid_state};
use crate::{
    AtStep, ByteStream, DriverError, DriverStep, MemoryKills, NetworkHook, Presence, ResourceUse,
    SandboxSpec, Sandboxes,
};

impl FakeDriver {
    /// Calls the network hook if the sandbox runs, with a file in place of a network namespace, which the fake lacks. The host is not
    /// locked meanwhile, because the hook may use it. A start that failed after its effect calls the hook as well.
    pub(super) fn connect_network(
        &self,
        id: &SandboxId,
        network: Option<NetworkHook>,
    ) -> Result<(), DriverError> {
        let Some(hook) = network.filter(|_| self.host.state().presence(id) == Presence::Running) else {
            return Ok(());
        };
        let none = std::fs::File::open("/dev/null").at(DriverStep::ConnectNetwork)?;
        hook(none.as_fd()).at(DriverStep::ConnectNetwork)
    }
}

#[async_trait]
impl Sandboxes for FakeDriver {
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            state.get_or_create(spec);
            Ok(())
        };
        self.host.call(DriverOp::Create, &spec.id, work).await
    }

    async fn start(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(&spec.id);
            if matches!(presence, Presence::Running | Presence::Paused) {
                return invalid_state(&spec.id, presence, "start");
            }
            let mode = state.mode;
            let sandbox = state.get_or_create(spec);
            sandbox.limits = Some(spec.limits);
            sandbox.guest = Some(Guest::new(mode, Arc::clone(&sandbox.disk)));
            sandbox.memory_kills = MemoryKills::default();
            Ok(())
        };
        let started = self.host.call(DriverOp::Start, &spec.id, work).await;
        started.and(self.connect_network(&spec.id, network))
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host
            .call(DriverOp::Pause, id, |state| state.guest(id, Presence::Running, "pause").map(Guest::freeze))
            .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host
            .call(DriverOp::Resume, id, |state| state.guest(id, Presence::Paused, "resume").map(Guest::thaw))
            .await
    }

    async fn page_out(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let work = |state: &mut State| match state.presence(id) {
            Presence::Paused => Ok(1 << 20),
            presence => invalid_state(id, presence, "page out"),
        };
        self.host.call(DriverOp::PageOut, id, work).await
    }

    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| match state.sandboxes.get_mut(&spec.id) {
            Some(sandbox) if sandbox.guest.is_some() => {
                sandbox.limits = Some(spec.limits);
                Ok(())
            }
            _ => invalid_state(&spec.id, state.presence(&spec.id), "limit"),
        };
        self.host.call(DriverOp::Limit, &spec.id, work).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.guest = None;
            }
            Ok(())
        };
        self.host.call(DriverOp::Kill, id, work).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.guest = None;
                sandbox.is_disk_read_only = false;
                sandbox.limits = None;
            }
            Ok(())
        };
        self.host.call(DriverOp::Stop, id, work).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            state.sandboxes.remove(id);
            state.prepared_disks.remove(id);
            Ok(())
        };
        self.host.call(DriverOp::Destroy, id, work).await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError> {
        let work =
            |state: &mut State| match state.sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
                Some(guest) => Ok(guest.connect()),
                None => Err(DriverError::failed(DriverStep::ConnectAgent, "no process listens")),
            };
        self.host.call(DriverOp::Connect, id, work).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        self.host.call(DriverOp::Inspect, id, |state| Ok(state.presence(id))).await
    }

    async fn last_seen_running_ms(&self, _id: &SandboxId) -> Result<Option<u64>, DriverError> {
        Ok(None)
    }

    /// One second of CPU time more with each call.
    async fn resource_use(&self, id: &SandboxId) -> Result<Option<ResourceUse>, DriverError> {
        let mut state = self.host.state();
        if state.presence(id) != Presence::Running {
            return Ok(None);
        }
        state.resource_reads += 1;
        let cpu_us = state.resource_reads * 1_000_000;
        Ok(Some(ResourceUse { cpu_us, memory: 12 << 20, memory_cache: 2 << 20, disk: 3 << 20 }))
    }

    async fn memory_kills(&self, id: &SandboxId) -> Option<MemoryKills> {
        self.host.state().sandboxes.get(id).map(|sandbox| sandbox.memory_kills)
    }

    async fn list(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(self.host.state().sandboxes.keys().cloned().collect())
    }
}
