//! The engine's public entry point: opens the engine, creates sandboxes, and finds them.

mod internal_snapshots;
pub mod metrics;
mod ports;
pub mod recover;
mod repeatable_work;

use std::sync::Arc;

use api::{Isolation, SandboxConfig, SandboxId, SandboxState, SnapshotId, SnapshotStorage};
use rules::{
    AccountUsage, AutoResume, Capacity, IsolationRules, Operation, QuotaTable, SnapshotQuery, TimeMs, Usage,
};
use store::{SandboxRecord, SnapshotRecord};
use tokio::sync::oneshot;

use crate::actor::ON_REQUEST;
use crate::background::{network_refusals, pressure};
use crate::capacity::host_watch::check_free;
use crate::capacity::provision::warm_pool::PoolState;
use crate::create;
use crate::error::{DaemonError, EngineError, SnapshotError};
use crate::object_store;
use crate::record::idempotency::PendingIdempotencyRecord;
use crate::record::status::{ResumeResult, Status};
use crate::registry::mailbox::ActorRequest;
use crate::sandbox::SandboxHandle;
use crate::services::settings::EngineSettings;
use crate::services::{Parts, Services};
use crate::snapshots::{SnapshotUsage, delete};
use crate::template::Template;
use metrics::MetricsSnapshot;
use recover::{Recovered, recover};

/// All sandboxes of this host. Clones refer to the same engine.
#[derive(Clone)]
pub struct Engine {
    pub(crate) services: Arc<Services>,
}

impl Engine {
    /// Recovers the sandboxes of an earlier daemon and starts the background tasks.
    pub async fn open(mut parts: Parts, settings: EngineSettings) -> Result<(Self, Recovered), EngineError> {
        let refusals = parts.refusals.take();
        let services = Arc::new(Services::new(parts, &settings));
        let recovered = recover(&services).await?;
        if let Some(refusals) = refusals {
            let Services { stamped_store, registry, counters, tasks, .. } = &*services;
            network_refusals::Recorder::new(
                stamped_store.clone(),
                Arc::clone(registry),
                Arc::clone(counters),
            )
            .start(refusals, tasks);
        }
        if let Some(watch) = services.host_watch.clone() {
            pressure::start(services.watched_host(), watch).await;
        }
        if let Some(interval) = settings.sample_interval {
            services.sampler().start(interval);
        }
        services.refill().start();
        services.hoarder_watch().start(&services.tasks);
        services.sweeper().start(&services.tasks);
        object_store::start_uploads(&services);
        services.purge(settings.retention()).start(&services.tasks);
        Ok((Self { services }, recovered))
    }

    /// Creates a sandbox. If the caller stops waiting, the create completes and the sandbox is listed as any other.
    ///
    /// With `idempotency` the response is stored in the same commit as the sandbox's record. If the key already has a
    /// response, no sandbox is created and the error is [`store::StoreError::AlreadyRecorded`].
    pub async fn create(
        &self,
        account: &str,
        config: SandboxConfig,
        template: Template,
        idempotency: Option<PendingIdempotencyRecord>,
    ) -> Result<Status, EngineError> {
        if self.services.tasks.is_stopping() {
            return Err(DaemonError::Stopping.into());
        }
        let (services, account) = (Arc::clone(&self.services), account.to_owned());
        let create = async move { create::create(&services, &account, config, template, idempotency).await };
        self.services.tasks.spawn(create).await.map_err(|_| DaemonError::TaskLost)?
    }

    /// Operations on a sandbox of an account. Each operation fails if the account has no such sandbox.
    pub fn sandbox<'a>(&'a self, account: &'a str, id: &'a SandboxId) -> SandboxHandle<'a> {
        SandboxHandle::new(&self.services, account, id)
    }

    /// The sandbox of an account that has a name. Reads memory only.
    pub fn named(&self, account: &str, name: &str) -> Option<SandboxId> {
        self.services.registry.names.find(account, name)
    }

    /// Whether paused sandboxes with an isolation can be stored with their processes.
    pub fn can_store_processes(&self, isolation: Isolation) -> bool {
        self.services.host.driver().can_store_processes(isolation)
    }

    /// The published record of a sandbox of any account.
    pub fn record(&self, id: &SandboxId) -> Option<Arc<SandboxRecord>> {
        let actor = self.services.registry.find(id)?;
        let record = Arc::clone(&actor.status.borrow().record);
        (record.state() != SandboxState::Terminated).then_some(record)
    }

    /// The published records of the running and paused sandboxes of an account.
    pub fn records_of(&self, account: &str) -> Vec<Arc<SandboxRecord>> {
        let mut records = self.services.registry.records();
        records.retain(|record| record.account == account && record.state() != SandboxState::Terminated);
        records
    }

    /// A page of the snapshots of an account, newest first, and the number of all that match.
    pub fn list_snapshots(&self, account: &str, query: &SnapshotQuery) -> (Vec<Arc<SnapshotRecord>>, u64) {
        self.services.snapshots.list(account, query)
    }

    /// A snapshot of the account, also one that another host has stored.
    pub async fn snapshot(&self, account: &str, id: &SnapshotId) -> Result<Arc<SnapshotRecord>, EngineError> {
        object_store::find(&self.services, account, id).await
    }

    /// Where the files of a snapshot are.
    pub fn snapshot_storage(&self, record: &SnapshotRecord) -> SnapshotStorage {
        match &self.services.copies {
            Some(copies) if self.services.snapshots.contains(&record.id) => copies.storage(record),
            Some(_) => SnapshotStorage::Remote,
            None => SnapshotStorage::Local,
        }
    }

    /// What a create from a snapshot begins with, and the snapshot. Brings it to this host if only the object store has it.
    pub async fn snapshot_template(
        &self,
        account: &str,
        id: &SnapshotId,
    ) -> Result<(Template, Arc<SnapshotRecord>), EngineError> {
        object_store::template(&self.services, account, id).await
    }

    pub fn has_object_store(&self) -> bool {
        self.services.copies.is_some()
    }

    /// The names of the image below a snapshot: the one that its record has, and the one that this host has for its digest.
    pub fn images_below(&self, record: &SnapshotRecord) -> Vec<String> {
        match &self.services.copies {
            Some(copies) => copies.images_below([record.image.as_str()], &record.image_digest),
            None => vec![record.image.clone()],
        }
    }

    /// Adopts a hibernated sandbox that another host has stored, and resumes it. `isolation` are the rules of the account.
    pub async fn adopt(
        &self,
        account: &str,
        id: &SandboxId,
        isolation: &IsolationRules,
    ) -> Result<ResumeResult, EngineError> {
        let (services, account, id) = (Arc::clone(&self.services), account.to_owned(), id.clone());
        let rules = isolation.clone();
        let adopting = async move { object_store::adopt(&services, &account, &id, &rules).await };
        // Also if the caller stops waiting.
        self.services.tasks.spawn(adopting).await.map_err(|_| DaemonError::TaskLost)?
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, account: &str, id: &SnapshotId) -> Result<TimeMs, EngineError> {
        let record = match self.services.snapshots.find(account, id) {
            Err(EngineError::Snapshot(SnapshotError::NotFound { .. })) => {
                // Says why, if there is such a snapshot.
                object_store::find(&self.services, account, id).await?;
                return Err(SnapshotError::OfOtherHost { id: id.clone() }.into());
            }
            found => found?,
        };
        let services = Arc::clone(&self.services);
        let deleting = async move {
            delete::delete(&services.stamped_store, &services.snapshots, &record, ON_REQUEST).await
        };
        // Also if the caller stops waiting.
        self.services.tasks.spawn(deleting).await.map_err(|_| DaemonError::TaskLost)?
    }

    /// What the snapshots of an account use, with all copies of disks that it has on this host.
    pub fn snapshots_of(&self, account: &str) -> SnapshotUsage {
        self.services.snapshots.used_by(account)
    }

    /// What the sandboxes of an account hold.
    pub fn used_by(&self, account: &str) -> AccountUsage {
        self.services.ledger.used_by(account)
    }

    pub fn quotas(&self) -> &QuotaTable {
        self.services.ledger.quotas()
    }

    /// Bytes of the execution logs of an account.
    pub fn execution_log_bytes(&self, account: &str) -> u64 {
        self.services.detached.account_bytes(&self.services.registry, account)
    }

    /// Refuses work that writes to a file system of the host whose free space is almost used up.
    pub fn check_free_disk(&self, free_bytes: u64) -> Result<(), EngineError> {
        Ok(check_free(&self.services.ledger, self.services.host_watch.as_ref(), free_bytes, 0)?)
    }

    /// Free bytes that other work has to leave on the file systems of the host.
    pub fn disk_reserve_bytes(&self) -> u64 {
        self.services.host_watch.as_ref().map_or(0, |watch| watch.disk().reserve_bytes)
    }

    /// The host's capacity, and how much of it sandboxes hold.
    pub fn capacity(&self) -> (Capacity, Usage) {
        (self.services.ledger.capacity(), self.services.ledger.used())
    }

    pub fn pool(&self) -> Vec<PoolState> {
        self.services.warm_pool.state()
    }

    /// The number of sandboxes that are not terminated.
    pub fn living(&self) -> usize {
        self.services.registry.count()
    }

    /// The number of sandboxes that run. Others are paused.
    pub fn running(&self) -> usize {
        let records = self.services.registry.records();
        records.iter().filter(|record| record.state() == SandboxState::Running).count()
    }

    /// The numbers that the metrics report. Blocks while the kernel lists the traffic of all links: not for an async worker.
    pub fn metrics(&self) -> MetricsSnapshot {
        metrics::snapshot(&self.services)
    }

    /// The time that records get.
    pub fn now(&self) -> TimeMs {
        self.services.stamped_store.now()
    }

    /// Resumes a paused sandbox because bytes arrived on a connection that was opened before the pause. Does not wait: the
    /// result shows on the connection.
    pub fn wake_if_paused(&self, id: &SandboxId) {
        if let Some(handle) = self.services.registry.find(id)
            && handle.status.borrow().record.state() == SandboxState::Paused
        {
            let operation = Operation::Ports { auto_resume: AutoResume::Allowed };
            let (reply, _) = oneshot::channel();
            let _ = handle.requests.try_send(ActorRequest::Enter { operation, reply });
        }
    }

    /// Stops accepting work, waits for the tasks, and empties the warm pool. Sandboxes keep running.
    pub async fn shutdown(&self) {
        self.services.tasks.stop();
        self.services.registry.clear();
        self.services.tasks.join().await;
        self.services.interruptions.end_all().await;
        while self.services.provisioner.evict_one().await {}
        self.services.stamped_store.store().close().await;
    }
}
