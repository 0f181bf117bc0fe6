//! Creation, in phases of which each is made from the one before:
//!
//! ```text
//!   ReservedSandbox --start--> ProvisionedSandbox --configure--> ConfiguredSandbox --record--> an actor in the registry
//!      |                   |                    |                    |
//!      +-- capacity, ids   +-- the same, and    +-- the same         +-- committed: from here on
//!          come back           everything on                             it is a sandbox
//!                              the host goes
//! ```
//!
//! A sandbox is connected while it starts, and nothing passes before its policy is in force, which settling does last.
//!
//! A phase that fails undoes all before it, and answers only when that is done. A daemon that dies half-way leaves things on
//! the host without a record, which recovery removes. The pool keeps sandboxes in the phase `ProvisionedSandbox`.

use std::sync::Arc;

use api::{Resources, SandboxConfig, SandboxId, SandboxState};
use driver::{Limits, SandboxSpec};
use rand::Rng;
use rules::{Accounting, TimeMs};
use store::{Batch, NewEvent, Remembered, SandboxRecord, StoreError};

use crate::actor::{self, ActorInit};
use crate::agent_connect::{BOOT_TIMEOUT, SETUP_TIMEOUT, connect_agent};
use crate::error::EngineError;
use crate::eviction::{Removal, discard, evict_one_or_wait, remove_or_log};
use crate::ledger::{Reservation, SlotLease};
use crate::link::{Agent, LinkError};
use crate::network;
use crate::settings::Template;
use crate::shared::Shared;
use crate::status::Status;
use crate::warm_pool::ProvisionedSandbox;

/// A share of the host, and a name.
pub struct ReservedSandbox {
    id: SandboxId,
    resources: Resources,
    reservation: Reservation,
    slot: SlotLease,
}

/// A sandbox as its owner wants it, unrecorded.
pub struct ConfiguredSandbox(ProvisionedSandbox);

/// Makes an answer's status and body from a record.
pub type BuildResponse = Box<dyn FnOnce(&SandboxRecord) -> (u16, Vec<u8>) + Send>;

/// The answer to a create that carried an idempotency key, kept with the record in one commit: a daemon that dies at any
/// instant has both or neither.
pub struct PendingIdempotencyRecord {
    pub endpoint: String,
    pub key: String,
    pub request_hash: [u8; 32],
    pub expires_at: TimeMs,
    /// Asked with the record that is about to be committed.
    pub respond: BuildResponse,
}

impl PendingIdempotencyRecord {
    fn into_record(self, record: &SandboxRecord) -> Remembered {
        let (status, content) = (self.respond)(record);
        Remembered {
            account: record.account.clone(),
            endpoint: self.endpoint,
            key: self.key,
            request_hash: self.request_hash,
            status,
            content,
            created_at: record.created_at,
            expires_at: self.expires_at,
        }
    }
}

/// Makes a sandbox for an account, from the pool if it holds a fit one.
pub async fn create(
    shared: &Arc<Shared>,
    account: String,
    config: SandboxConfig,
    template: Template,
    idempotency: Option<PendingIdempotencyRecord>,
) -> Result<Status, EngineError> {
    let _counted = shared.creating.enter();
    let made = provision(shared, &account, config, template, idempotency).await;
    if let Err(error) = &made {
        record_failure(shared, account, error).await;
    }
    made
}

/// A failed start leaves nothing but an event. What was only refused leaves none.
async fn record_failure(shared: &Shared, account: String, error: &EngineError) {
    let refused = matches!(
        error,
        EngineError::NoCapacity(_)
            | EngineError::NoSlot(_)
            | EngineError::Stopping
            | EngineError::Store(StoreError::AlreadyRemembered { .. })
    );
    if refused {
        shared.counters.refusal(error);
        return;
    }
    shared.counters.create_failed.add(1);
    let event = NewEvent {
        sandbox: new_id(),
        account,
        run: String::new(),
        at: shared.clock.now(),
        kind: "sandbox.error".to_owned(),
        data: serde_json::json!({ "message": failure_message(error) }),
        once: None,
    };
    if let Err(error) = shared.store.commit(Batch::new().event(event)).await {
        tracing::error!(%error, "could not record that a sandbox failed to start");
    }
}

/// What its owner may know of a failed start; of the rest the log has more.
fn failure_message(error: &EngineError) -> String {
    match error {
        EngineError::Workdir { .. } => format!("could not be started: {error}"),
        _ => "could not be started, through a fault of the server".to_owned(),
    }
}

fn new_id() -> SandboxId {
    let mut random = [0; 20];
    rand::rng().fill_bytes(&mut random);
    SandboxId::from_random(random)
}

async fn provision(
    shared: &Arc<Shared>,
    account: &str,
    config: SandboxConfig,
    template: Template,
    idempotency: Option<PendingIdempotencyRecord>,
) -> Result<Status, EngineError> {
    let (started, counter) = match take_from_pool(shared, &config, &template) {
        Some(started) => (started, &shared.counters.created_warm),
        None => (provision_cold(shared, config.resources, template).await?, &shared.counters.created_cold),
    };
    let configured = started.configure(shared, &config).await?;
    let made = configured.record(shared, account.to_owned(), config, idempotency).await?;
    counter.add(1);
    Ok(made)
}

async fn provision_cold(
    shared: &Arc<Shared>,
    resources: Resources,
    template: Template,
) -> Result<ProvisionedSandbox, EngineError> {
    let reserved = match ReservedSandbox::new(shared, resources) {
        // What stands ready for others gives way to what is wanted now.
        Err(EngineError::NoCapacity(_) | EngineError::NoSlot(_))
            if shared.ledger.could_fit(resources) && evict_one_or_wait(shared).await =>
        {
            return Box::pin(provision_cold(shared, resources, template)).await;
        }
        reserved => reserved?,
    };
    reserved.start(shared, template).await
}

fn take_from_pool(
    shared: &Arc<Shared>,
    config: &SandboxConfig,
    template: &Template,
) -> Option<ProvisionedSandbox> {
    let (found, stale) = shared.warm_pool.take_matching(template, config.resources.disk_mb);
    shared.warm_pool.wanted.notify_one();
    for sandbox in stale {
        let shared_by_task = Arc::clone(shared);
        shared.tasks.spawn(async move { discard(&shared_by_task, sandbox).await });
    }
    found
}

impl ReservedSandbox {
    pub fn new(shared: &Shared, resources: Resources) -> Result<Self, EngineError> {
        if shared.stopping.is_cancelled() {
            return Err(EngineError::Stopping);
        }
        let reservation = shared.ledger.reserve(resources)?;
        let slot = shared.ledger.lease_slot()?;
        Ok(Self { id: new_id(), resources, reservation, slot })
    }

    pub async fn start(
        self,
        shared: &Arc<Shared>,
        template: Template,
    ) -> Result<ProvisionedSandbox, EngineError> {
        let spec = SandboxSpec {
            id: self.id,
            slot: self.slot.number,
            layers: template.layers.clone(),
            limits: Limits { cpu: self.resources.cpu, memory_mb: self.resources.memory_mb },
            disk_mb: self.resources.disk_mb,
        };
        match start_and_connect(shared, &spec).await {
            Ok(agent) => Ok(ProvisionedSandbox {
                spec,
                resources: self.resources,
                template,
                agent,
                reservation: self.reservation,
                slot: self.slot,
            }),
            Err(error) => {
                if remove_or_log(shared, &network::guest_of(&spec)).await == Removal::Incomplete {
                    self.slot.keep();
                }
                Err(error)
            }
        }
    }
}

async fn start_and_connect(shared: &Shared, spec: &SandboxSpec) -> Result<Agent, EngineError> {
    shared.driver.create(spec).await?;
    shared.driver.start(spec, Some(network::plug(shared, network::guest_of(spec)))).await?;
    connect_agent(shared, &spec.id, BOOT_TIMEOUT).await
}

impl ProvisionedSandbox {
    pub async fn configure(
        mut self,
        shared: &Arc<Shared>,
        config: &SandboxConfig,
    ) -> Result<ConfiguredSandbox, EngineError> {
        match self.try_configure(shared, config).await {
            Ok(()) => Ok(ConfiguredSandbox(self)),
            Err(error) => {
                // As it came from its shelf, and in nobody's way: a refused create costs the pool nothing.
                let unchanged = matches!(error, EngineError::NoCapacity(_));
                let left = if unchanged { shared.warm_pool.put_back(self) } else { Some(self) };
                if let Some(sandbox) = left {
                    discard(shared, sandbox).await;
                }
                Err(error)
            }
        }
    }

    async fn try_configure(&mut self, shared: &Shared, config: &SandboxConfig) -> Result<(), EngineError> {
        if self.resources != config.resources {
            while let Err(error) = self.reservation.resize(config.resources) {
                if !(shared.ledger.could_fit(config.resources) && evict_one_or_wait(shared).await) {
                    return Err(error);
                }
            }
            self.resources = config.resources;
            self.spec.limits = Limits { cpu: config.resources.cpu, memory_mb: config.resources.memory_mb };
            shared.driver.limit(&self.spec).await?;
        }
        if config.workdir != DISK_WORKDIR {
            let made = self.agent.make_dirs(&[&config.workdir], SETUP_TIMEOUT).await;
            made.map_err(|error| match error {
                LinkError::Refused { message, .. } => {
                    EngineError::Workdir { path: config.workdir.clone(), reason: message }
                }
                error => error.into(),
            })?;
        }
        Ok(shared.network.apply(&network::guest_of(&self.spec), &config.network.egress).await?)
    }
}

/// On every disk from the start.
const DISK_WORKDIR: &str = "/workspace";

impl ConfiguredSandbox {
    async fn record(
        self,
        shared: &Arc<Shared>,
        account: String,
        config: SandboxConfig,
        idempotency: Option<PendingIdempotencyRecord>,
    ) -> Result<Status, EngineError> {
        let started = self.0;
        let record = new_record(shared, &started, account, config);
        let created =
            actor::event(&record, "sandbox.created", serde_json::json!({ "image": record.config.image }));
        let running = actor::event(&record, "sandbox.started", serde_json::json!({}));
        let mut batch = Batch::new().put(record.clone()).event(created).event(running);
        if let Some(idempotency) = idempotency {
            batch = batch.remember(idempotency.into_record(&record));
        }
        if let Err(error) = shared.store.commit(batch).await {
            discard(shared, started).await;
            return Err(error.into());
        }
        let birth = ActorInit {
            record,
            agent: Some(started.agent),
            reservation: started.reservation,
            slot: started.slot,
        };
        Ok(actor::spawn(shared, birth))
    }
}

fn new_record(
    shared: &Shared,
    started: &ProvisionedSandbox,
    account: String,
    config: SandboxConfig,
) -> SandboxRecord {
    let now = shared.clock.now();
    let mut accounting = Accounting::default();
    accounting.started(now);
    SandboxRecord {
        id: started.spec.id.clone(),
        account,
        state: SandboxState::Running,
        config,
        slot: started.slot.number,
        image_digest: started.template.digest.clone(),
        layers: started.template.layers.iter().map(|layer| layer.to_string_lossy().into_owned()).collect(),
        image_env: started.template.env.clone(),
        created_at: now,
        started_at: Some(now),
        paused_at: None,
        terminated_at: None,
        reason: None,
        accounting,
        revision: 1,
        note: None,
        ports: Vec::new(),
    }
}
