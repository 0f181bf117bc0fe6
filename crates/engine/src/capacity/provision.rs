//! Provisioning: sandboxes that run and have no owner and no record yet, for creates and for the warm pool.
//!
//! A failed step undoes all earlier steps before it returns. If the daemon crashes, the host has sandboxes without a record, which
//! recovery removes.

pub mod refill;
pub mod warm_pool;

use std::sync::Arc;
use std::time::Duration;

use api::{Isolation, Resources, SandboxId};
use driver::{Limits, SandboxSpec};

use crate::capacity::ledger::{Ledger, Reservation, SlotLease};
use crate::capacity::provision::warm_pool::WarmPool;
use crate::detached::ExecutionRegistry;
use crate::error::{CapacityError, DaemonError, EngineError};
use crate::host::{Host, guest_of_spec};
use crate::link::Agent;
use crate::record::ids::new_sandbox_id;
use crate::tasks::Tasks;
use crate::template::Template;

/// How long a create waits for a sandbox that is being provisioned for the warm pool, in order to evict it.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(5);

/// Capacity, a range of user ids, and an id for a sandbox.
pub struct ReservedSandbox {
    id: SandboxId,
    resources: Resources,
    reservation: Reservation,
    slot: SlotLease,
}

impl ReservedSandbox {
    /// For a sandbox that had this id on another host.
    pub fn with_id(self, id: SandboxId) -> Self {
        Self { id, ..self }
    }
}

/// A running sandbox without an owner.
pub struct ProvisionedSandbox {
    pub spec: SandboxSpec,
    pub resources: Resources,
    pub template: Template,
    pub agent: Agent,
    pub reservation: Reservation,
    pub slot: SlotLease,
}

/// Provisions sandboxes, and removes those that nobody owns.
pub struct Provisioner {
    host: Arc<Host>,
    ledger: Arc<Ledger>,
    warm_pool: Arc<WarmPool>,
    detached: Arc<ExecutionRegistry>,
    tasks: Tasks,
}

/// Whether a sandbox was removed from the host completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    Complete,
    /// The next recovery repeats the removal. Until then the range of user ids and the address stay reserved.
    Incomplete,
}

impl Provisioner {
    pub fn new(
        host: Arc<Host>,
        ledger: Arc<Ledger>,
        warm_pool: Arc<WarmPool>,
        detached: Arc<ExecutionRegistry>,
        tasks: Tasks,
    ) -> Self {
        Self { host, ledger, warm_pool, detached, tasks }
    }

    /// Provisions a sandbox for the warm pool if the host has capacity.
    pub async fn provision(
        &self,
        resources: Resources,
        template: Template,
        isolation: Isolation,
    ) -> Result<ProvisionedSandbox, EngineError> {
        self.start(self.reserve(resources, None)?, template, isolation).await
    }

    /// Reserves what a sandbox of an account needs, and evicts warm sandboxes if the host has no capacity.
    pub async fn reserve_with_eviction(
        &self,
        account: &str,
        resources: Resources,
    ) -> Result<ReservedSandbox, EngineError> {
        loop {
            match self.reserve(resources, Some(account)) {
                Err(EngineError::Capacity(CapacityError::NoCapacity(_) | CapacityError::NoSlot(_)))
                    if self.ledger.could_fit(resources) && self.evict_one_or_wait().await => {}
                reserved => return reserved,
            }
        }
    }

    fn reserve(&self, resources: Resources, account: Option<&str>) -> Result<ReservedSandbox, EngineError> {
        if self.tasks.is_stopping() {
            return Err(DaemonError::Stopping.into());
        }
        let reservation = self.ledger.reserve(resources, account)?;
        let slot = self.ledger.lease_slot()?;
        Ok(ReservedSandbox { id: new_sandbox_id(), resources, reservation, slot })
    }

    /// Provisions a sandbox for which everything is reserved.
    pub async fn start(
        &self,
        reserved: ReservedSandbox,
        template: Template,
        isolation: Isolation,
    ) -> Result<ProvisionedSandbox, EngineError> {
        let ReservedSandbox { id, resources, reservation, slot } = reserved;
        let spec = SandboxSpec {
            id,
            slot: slot.number,
            layers: template.layers.clone(),
            disk_from: template.disk_from.clone(),
            processes_from: template.processes_from.clone(),
            limits: Limits { cpu: resources.cpu, memory_mb: resources.memory_mb },
            disk_mb: resources.disk_mb,
            isolation,
        };
        match self.bring_up(&spec).await {
            Ok(agent) => Ok(ProvisionedSandbox { spec, resources, template, agent, reservation, slot }),
            Err(error) => {
                if self.remove(&spec).await == Removal::Incomplete {
                    slot.keep();
                }
                Err(error)
            }
        }
    }

    async fn bring_up(&self, spec: &SandboxSpec) -> Result<Agent, EngineError> {
        let Some(snapshot) = &spec.processes_from else { return self.host.provision(spec).await };
        self.detached.stage(snapshot, &spec.id, 0).await?;
        let ops = self.detached.adopt_staged(&spec.id).await?;
        self.host.provision_copy(spec, &ops).await
    }

    /// Removes a sandbox and frees its resources.
    pub async fn discard(&self, sandbox: ProvisionedSandbox) {
        if self.remove(&sandbox.spec).await == Removal::Incomplete {
            sandbox.slot.keep();
        }
    }

    pub fn discard_in_background(self: &Arc<Self>, sandbox: ProvisionedSandbox) {
        let provisioner = Arc::clone(self);
        self.tasks.spawn(async move { provisioner.discard(sandbox).await });
    }

    /// Evicts one warm sandbox. False if there is none.
    pub async fn evict_one(&self) -> bool {
        let Some(sandbox) = self.warm_pool.take_any() else { return false };
        self.discard(sandbox).await;
        true
    }

    /// Evicts one warm sandbox, and waits for one that is being provisioned. False if no capacity was freed.
    ///
    /// The caller is a create, during which the refill provisions a few sandboxes a second at most.
    pub async fn evict_one_or_wait(&self) -> bool {
        loop {
            let delivery = self.warm_pool.next_delivery();
            if self.evict_one().await {
                return true;
            }
            let Some(mut delivery) = delivery else { return false };
            match tokio::time::timeout(EVICTION_TIMEOUT, delivery.changed()).await {
                // A sandbox that could not be provisioned has freed its capacity.
                Ok(Ok(())) if self.warm_pool.is_empty() => return true,
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    /// Removes a sandbox without an owner. A failure is logged; the next recovery repeats the removal.
    async fn remove(&self, spec: &SandboxSpec) -> Removal {
        if spec.processes_from.is_some()
            && let Err(error) = self.detached.remove_all(&spec.id).await
        {
            tracing::error!(id = %spec.id, %error, "could not remove the executions of a sandbox without an owner");
        }
        match self.host.remove(&guest_of_spec(spec)).await {
            Ok(()) => Removal::Complete,
            Err(error) => {
                tracing::error!(id = %spec.id, %error, "could not remove a sandbox without an owner");
                Removal::Incomplete
            }
        }
    }
}
