//! Creates a sandbox for an account:
//!
//! ```text
//! warm pool or Provisioner --> ProvisionedSandbox --configure--> ConfiguredSandbox --record--> actor in the registry
//! ```
//!
//! The network connects a sandbox when it starts; no packet passes before its policy is enforced, which is the last step of the
//! configuration. A failed step undoes all earlier steps before it returns. If the daemon crashes before the record is
//! committed, recovery removes the sandbox.

pub mod fork;

use std::sync::Arc;

use api::{EventKind, Resources, SandboxConfig};
use driver::Limits;
use guest_proto::FileRequest;
use rules::{Lifecycle, Quota, TimeMs};
use serde_json::json;
use store::{Batch, NewEvent, SandboxRecord, StoreError};
use tokio::time::Instant;

use crate::actor::{self, ActorContext, ActorInit};
use crate::capacity::provision::{ProvisionedSandbox, ReservedSandbox};
use crate::error::{CapacityError, DaemonError, EngineError, HostError, SandboxError};
use crate::host::{SETUP_TIMEOUT, guest_of_spec};
use crate::link::LinkError;
use crate::record::events;
use crate::record::idempotency::PendingIdempotencyRecord;
use crate::record::ids::new_sandbox_id;
use crate::record::status::Status;
use crate::services::Services;
use crate::template::Template;

/// The working directory that exists on each disk from the start.
const DISK_WORKDIR: &str = "/workspace";
/// The user of sandboxes with [`SandboxConfig::default_user`]. Its number is another one if the image uses this one.
pub(crate) const DEFAULT_USER: &str = "user";
const DEFAULT_UID: u32 = 1000;
const ROOT: &str = "root";

/// A sandbox with the configuration of its owner and without a record.
pub struct ConfiguredSandbox(pub ProvisionedSandbox);

/// Creates a sandbox, from the warm pool if it has a matching one.
pub async fn create(
    services: &Services,
    account: &str,
    config: SandboxConfig,
    template: Template,
    idempotency: Option<PendingIdempotencyRecord>,
) -> Result<Status, EngineError> {
    let _counted = services.counters.creating.enter();
    let (begun, isolation) = (Instant::now(), config.isolation);
    let creation = Creation { services, account };
    let created = creation.run(config, template, idempotency).await;
    match &created {
        Ok(_) => services.counters.latencies.of(isolation).create.observe(begun.elapsed()),
        Err(error) => creation.record_failure(error).await,
    }
    created
}

/// Creates sandboxes for one account.
pub struct Creation<'a> {
    pub services: &'a Services,
    pub account: &'a str,
}

impl Creation<'_> {
    async fn run(
        &self,
        config: SandboxConfig,
        template: Template,
        idempotency: Option<PendingIdempotencyRecord>,
    ) -> Result<Status, EngineError> {
        let Services { counters, provisioner, registry, .. } = self.services;
        // Before anything is provisioned. The actor holds the name before the reservation ends.
        let _name = registry.names.reserve(self.account, config.name())?;
        let (provisioned, counter) = match self.take_from_pool(&config, &template) {
            Some(provisioned) => (provisioned, counters.created_warm(config.isolation)),
            None => {
                let isolation = config.isolation;
                let reserved = self.reserve(config.resources).await?;
                (provisioner.start(reserved, template, isolation).await?, counters.created_cold(isolation))
            }
        };
        let configured = self.configure(provisioned, &config).await?;
        let status = self.record(configured, config, idempotency).await?;
        counter.add(1);
        Ok(status)
    }

    /// Reserves what one more sandbox of the account needs.
    pub async fn reserve(&self, resources: Resources) -> Result<ReservedSandbox, EngineError> {
        let Services { provisioner, snapshots, .. } = self.services;
        match provisioner.reserve_with_eviction(self.account, resources).await {
            // The disks of ended forks count until they are removed.
            Err(EngineError::Capacity(CapacityError::Quota(refused)))
                if refused.quota == Quota::Disk && snapshots.wait_for_sweep(self.account).await =>
            {
                provisioner.reserve_with_eviction(self.account, resources).await
            }
            reserved => reserved,
        }
    }

    /// Charges the account for a sandbox of the warm pool, like [`Self::reserve`].
    async fn claim(&self, sandbox: &mut ProvisionedSandbox, resources: Resources) -> Result<(), EngineError> {
        let claimed = match sandbox.reservation.claim(self.account, resources) {
            Err(CapacityError::Quota(refused))
                if refused.quota == Quota::Disk
                    && self.services.snapshots.wait_for_sweep(self.account).await =>
            {
                sandbox.reservation.claim(self.account, resources)
            }
            claimed => claimed,
        };
        Ok(claimed?)
    }

    fn take_from_pool(&self, config: &SandboxConfig, template: &Template) -> Option<ProvisionedSandbox> {
        let Services { warm_pool, provisioner, .. } = self.services;
        let (found, stale) =
            warm_pool.take_matching(self.account, template, config.isolation, config.resources);
        warm_pool.request_refill();
        for sandbox in stale {
            provisioner.discard_in_background(sandbox);
        }
        found
    }

    /// Applies the owner's configuration. After a failure the sandbox is discarded, or returned to the pool if it is unchanged.
    pub async fn configure(
        &self,
        mut sandbox: ProvisionedSandbox,
        config: &SandboxConfig,
    ) -> Result<ConfiguredSandbox, EngineError> {
        let Err(error) = self.try_configure(&mut sandbox, config).await else {
            return Ok(ConfiguredSandbox(sandbox));
        };
        sandbox.reservation.unclaim();
        let is_unchanged = matches!(
            error,
            EngineError::Capacity(
                CapacityError::NoCapacity(_) | CapacityError::Quota(_) | CapacityError::Shortage(_)
            )
        );
        let unused = if is_unchanged { self.services.warm_pool.put_back(sandbox) } else { Some(sandbox) };
        if let Some(sandbox) = unused {
            self.services.provisioner.discard(sandbox).await;
        }
        Err(error)
    }

    async fn try_configure(
        &self,
        sandbox: &mut ProvisionedSandbox,
        config: &SandboxConfig,
    ) -> Result<(), EngineError> {
        let Services { host, ledger, provisioner, .. } = self.services;
        let wanted = config.resources;
        self.claim(sandbox, wanted).await?;
        if sandbox.resources != wanted {
            while let Err(error) = sandbox.reservation.resize(wanted) {
                if !(ledger.could_fit(wanted) && provisioner.evict_one_or_wait().await) {
                    return Err(error.into());
                }
            }
            sandbox.resources = wanted;
            sandbox.spec.limits = Limits { cpu: wanted.cpu, memory_mb: wanted.memory_mb };
            host.driver().limit(&sandbox.spec).await?;
        }
        if config.default_user {
            create_default_user(sandbox).await?;
        }
        // The owner of a snapshot may have deleted it.
        if config.workdir != DISK_WORKDIR || sandbox.template.is_snapshot() {
            let created = sandbox.agent.make_dirs(&[&config.workdir], SETUP_TIMEOUT).await;
            created.map_err(|error| match error {
                LinkError::Refused { message, .. } => EngineError::Sandbox(SandboxError::Workdir {
                    path: config.workdir.clone(),
                    reason: message,
                }),
                error => error.into(),
            })?;
        }
        let guest = guest_of_spec(&sandbox.spec);
        Ok(host.network().apply(&guest, &config.network.egress).await?)
    }

    /// Commits the record, and starts the sandbox's actor.
    async fn record(
        &self,
        configured: ConfiguredSandbox,
        config: SandboxConfig,
        idempotency: Option<PendingIdempotencyRecord>,
    ) -> Result<Status, EngineError> {
        let Services { stamped_store, provisioner, actors, .. } = self.services;
        let sandbox = configured.0;
        let record = new_record(stamped_store.now(), &sandbox, self.account.to_owned(), config);
        let mut batch = with_created(Batch::new(), &record);
        if let Some(idempotency) = idempotency {
            batch =
                batch.idempotency_record(idempotency.complete(&record.account, record.created_at, &record));
        }
        if let Err(error) = stamped_store.commit(batch).await {
            provisioner.discard(sandbox).await;
            return Err(error.into());
        }
        Ok(start_actor(actors, sandbox, record))
    }

    /// Counts a refused create, or records an event for a failed one.
    pub async fn record_failure(&self, error: &EngineError) {
        let Services { counters, stamped_store, .. } = self.services;
        if is_refusal(error) {
            error.count_refusal(counters);
            return;
        }
        counters.create_failed.add(1);
        let event = NewEvent {
            sandbox: new_sandbox_id(),
            account: self.account.to_owned(),
            run: String::new(),
            at: stamped_store.now(),
            kind: EventKind::SandboxError,
            data: json!({ "message": failure_message(error) }),
            once: None,
        };
        if let Err(error) = stamped_store.commit(Batch::new().event(event)).await {
            tracing::error!(%error, "could not record that a sandbox failed to start");
        }
    }
}

/// Creates the default user, and gives it the working directory of the disk unless an image or a snapshot has put something there.
async fn create_default_user(sandbox: &ProvisionedSandbox) -> Result<(), EngineError> {
    let agent = &sandbox.agent;
    let create = FileRequest::CreateUser { name: DEFAULT_USER, uid: DEFAULT_UID };
    agent.run_file_op(create, ROOT, SETUP_TIMEOUT).await?;
    let path = DISK_WORKDIR.as_bytes();
    let mut requests = vec![(FileRequest::MakeDirs { path }, DEFAULT_USER)];
    // That of a snapshot may be the directory of its processes, or of a user that a step of a build has chosen.
    if !sandbox.template.is_snapshot() {
        requests.insert(0, (FileRequest::Delete { path, recursive: false }, ROOT));
    }
    for (request, user) in requests {
        match agent.run_file_op(request, user, SETUP_TIMEOUT).await {
            // The directory is not empty, or exists.
            Ok(()) | Err(LinkError::Refused { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Adds the record of a new sandbox and its events.
pub fn with_created(batch: Batch, record: &SandboxRecord) -> Batch {
    let (at, image) = (record.created_at, json!({ "image": record.config.image }));
    let created = events::of_sandbox(record, at, EventKind::SandboxCreated, image);
    let started = events::of_sandbox(record, at, EventKind::SandboxStarted, json!({}));
    batch.put(record.clone()).event(created).event(started)
}

/// Starts the actor of a sandbox whose record is committed.
pub fn start_actor(actors: &Arc<ActorContext>, sandbox: ProvisionedSandbox, record: SandboxRecord) -> Status {
    // The template holds the disks of snapshots until the registry has the record.
    let ProvisionedSandbox { agent, reservation, slot, template: _template, .. } = sandbox;
    actor::spawn(actors, ActorInit { record, agent: Some(agent), reservation, slot, recovery: None })
}

pub fn new_record(
    now: TimeMs,
    sandbox: &ProvisionedSandbox,
    account: String,
    config: SandboxConfig,
) -> SandboxRecord {
    let template = &sandbox.template;
    SandboxRecord {
        lifetime_ms: config.timeout_ms,
        id: sandbox.spec.id.clone(),
        account,
        lifecycle: Lifecycle::started(now),
        config,
        slot: sandbox.slot.number,
        image_digest: template.digest.clone(),
        layers: template.layers.iter().map(|layer| layer.to_string_lossy().into_owned()).collect(),
        image_env: template.env.clone(),
        created_at: now,
        revision: 1,
        ports: Vec::new(),
    }
}

fn is_refusal(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Capacity(
            CapacityError::NoCapacity(_)
                | CapacityError::NoSlot(_)
                | CapacityError::Shortage(_)
                | CapacityError::Quota(_)
        ) | EngineError::Daemon(DaemonError::Stopping)
            | EngineError::Sandbox(SandboxError::NameTaken { .. })
            | EngineError::Host(HostError::Store(StoreError::AlreadyRecorded { .. }))
    )
}

/// What the owner may know of a failed start. The log has the details.
fn failure_message(error: &EngineError) -> String {
    match error {
        EngineError::Sandbox(SandboxError::Workdir { .. }) => format!("could not be started: {error}"),
        _ => "could not be started because of an internal error of the service".to_owned(),
    }
}
