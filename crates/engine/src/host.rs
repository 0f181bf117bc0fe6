//! Sandboxes on this host: the isolation backend and the network, used together.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use driver::{Driver, DriverError, NetworkHook, Presence, SandboxSpec};
use net::{Guest, Network};
use rules::ProcessState;
use store::SandboxRecord;

use crate::error::{AgentError, EngineError};
use crate::link::{Agent, LinkError};
use crate::record::clock::Clock;

/// How long a sandbox may take to boot. gVisor needs seconds on a loaded host, a native runtime milliseconds.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a running agent may take to accept a link.
pub const RECONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the agent may take for a setup step such as creating the working directory.
pub const SETUP_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Host {
    driver: Arc<dyn Driver>,
    network: Arc<dyn Network>,
    clock: Clock,
}

impl Host {
    pub fn new(driver: Arc<dyn Driver>, network: Arc<dyn Network>, clock: Clock) -> Self {
        Self { driver, network, clock }
    }

    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    pub fn network(&self) -> &dyn Network {
        &*self.network
    }

    /// Creates and starts a new sandbox, and opens a link to its agent.
    pub async fn provision(&self, spec: &SandboxSpec) -> Result<Agent, EngineError> {
        self.driver.create(spec).await?;
        self.start(spec).await?;
        self.connect(&spec.id, &[], BOOT_TIMEOUT).await
    }

    /// Creates a sandbox that continues the processes of a snapshot, with these detached commands, and opens a link to its agent.
    pub async fn provision_copy(
        &self,
        spec: &SandboxSpec,
        detached_ops: &[u64],
    ) -> Result<Agent, EngineError> {
        self.driver.create(spec).await?;
        self.wake(spec).await.map_err(EngineError::of_wake)?;
        let agent = self.connect(&spec.id, detached_ops, BOOT_TIMEOUT).await.map_err(EngineError::of_wake)?;
        if !agent.adopt(&spec.id.host_name(), SETUP_TIMEOUT).await? {
            return Err(AgentError::TooOld.into());
        }
        // Without a record nobody wakes it again.
        self.driver.discard_memory(&spec.id).await?;
        Ok(agent)
    }

    /// Starts a sandbox on its disk and connects it to the network.
    pub async fn start(&self, spec: &SandboxSpec) -> Result<(), EngineError> {
        Ok(self.driver.start(spec, Some(self.network_hook(spec))).await?)
    }

    /// Continues the stored processes of a sandbox and connects it to the network.
    pub async fn wake(&self, spec: &SandboxSpec) -> Result<(), EngineError> {
        Ok(self.driver.wake(spec, Some(self.network_hook(spec))).await?)
    }

    fn network_hook(&self, spec: &SandboxSpec) -> NetworkHook {
        let (network, guest) = (Arc::clone(&self.network), guest_of_spec(spec));
        Arc::new(move |namespace| network.plug(&guest, namespace).map_err(io::Error::other))
    }

    /// Opens a link to a running agent. The detached commands in `detached_ops` continue; all others of earlier links are killed.
    ///
    /// Operation numbers grow with time, so that no link reuses a number of an earlier one, even of a crashed daemon.
    pub async fn connect(
        &self,
        id: &SandboxId,
        detached_ops: &[u64],
        timeout: Duration,
    ) -> Result<Agent, EngineError> {
        let first_op = self.clock.now().0 << 20;
        let connecting = tokio::time::timeout(timeout, self.driver.connect(id));
        let stream = connecting.await.map_err(|_| LinkError::Silent(timeout))??;
        Ok(Agent::greet(stream, first_op, detached_ops, timeout).await?)
    }

    /// Whether the disk of a sandbox has become read-only. A failed look is no reason to refuse anything.
    pub async fn has_read_only_disk(&self, id: &SandboxId) -> bool {
        self.driver.has_read_only_disk(id).await.unwrap_or_else(|error| {
            tracing::warn!(%id, %error, "could not look whether the disk of a sandbox has become read-only");
            false
        })
    }

    /// Where the processes of a sandbox are.
    pub async fn process_state(&self, id: &SandboxId) -> Result<ProcessState, DriverError> {
        Ok(match self.driver.inspect(id).await? {
            Presence::Running => ProcessState::Running,
            Presence::Paused => ProcessState::Frozen,
            Presence::Hibernated => ProcessState::Stored,
            Presence::Stopped | Presence::Absent => ProcessState::Ended,
        })
    }

    /// Whether a sandbox that should have processes has none.
    pub async fn has_no_processes(&self, id: &SandboxId) -> bool {
        matches!(self.process_state(id).await, Ok(ProcessState::Ended))
    }

    /// Removes everything except the disk. The network is removed even if the isolation backend fails.
    pub async fn stop(&self, guest: &Guest) -> Result<(), EngineError> {
        let stopped = self.driver.stop(&guest.id).await;
        self.network.unplug(guest).await?;
        Ok(stopped?)
    }

    /// Removes a sandbox from the host. The network is removed even if the isolation backend fails.
    pub async fn remove(&self, guest: &Guest) -> Result<(), EngineError> {
        let destroyed = self.driver.destroy(&guest.id).await;
        self.network.unplug(guest).await?;
        Ok(destroyed?)
    }
}

/// The sandbox as the network identifies it.
pub fn guest(record: &SandboxRecord) -> Guest {
    Guest { id: record.id.clone(), slot: record.slot }
}

pub fn guest_of_spec(spec: &SandboxSpec) -> Guest {
    Guest { id: spec.id.clone(), slot: spec.slot }
}
