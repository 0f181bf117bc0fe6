//! Forks a sandbox: new sandboxes above a copy of its disk, with or without copies of its processes, all or none.
//!
//! Capacity is reserved first, so that a fork that does not fit costs nothing. The copy has no record: it is removed when the last
//! sandbox above it has ended, and counts in the quotas until then.

use std::sync::Arc;

use api::{EventKind, SandboxConfig};
use futures_util::StreamExt;
use rules::ForkRequest;
use serde_json::json;
use store::{Batch, SandboxRecord};

use crate::capacity::ledger::QuotaCheck;
use crate::capacity::provision::ReservedSandbox;
use crate::create::{ConfiguredSandbox, Creation, new_record, start_actor, with_created};
use crate::error::{DaemonError, EngineError};
use crate::record::events;
use crate::record::idempotency::PendingIdempotencyRecord;
use crate::record::status::Status;
use crate::registry::mailbox::ActorHandle;
use crate::services::Services;
use crate::snapshots::take::{hidden_copy, scope_of};
use crate::template::Template;

/// Sandboxes that are started at a time.
const CONCURRENT_STARTS: usize = 8;

pub async fn fork(
    services: &Services,
    actor: &ActorHandle,
    request: ForkRequest,
    idempotency: Option<PendingIdempotencyRecord<Vec<SandboxRecord>>>,
) -> Result<Vec<Status>, EngineError> {
    let _counted = services.counters.creating.enter();
    let source = Arc::clone(&actor.status.borrow().record);
    let fork = Fork {
        creation: Creation { services, account: &source.account },
        config: request.config(&source.config)?,
    };
    // The actor of the new sandbox holds the name before the reservation ends.
    let _name = services.registry.names.reserve(&source.account, fork.config.name())?;
    let reserved = fork.reserve(request.count).await?;
    let copy = hidden_copy(&services.taking(), actor, scope_of(request.memory), QuotaCheck::Enforced).await;
    let copy = copy.inspect_err(|error| error.count_refusal(&services.counters))?;
    let template = services.snapshots.template_of(&copy.record);
    let sandboxes = fork.start(reserved, &template).await?;
    let statuses = fork.record(&copy.copied.sandbox, sandboxes, idempotency).await?;
    drop(copy);
    services.counters.forked.add(1);
    Ok(statuses)
}

struct Fork<'a> {
    creation: Creation<'a>,
    config: SandboxConfig,
}

impl Fork<'_> {
    async fn reserve(&self, count: u32) -> Result<Vec<ReservedSandbox>, EngineError> {
        let counters = &self.creation.services.counters;
        let mut reserved = Vec::new();
        for _ in 0..count {
            let next = self.creation.reserve(self.config.resources).await;
            reserved.push(next.inspect_err(|error| error.count_refusal(counters))?);
        }
        Ok(reserved)
    }

    /// Starts and configures all. If one fails, the others are removed.
    async fn start(
        &self,
        reserved: Vec<ReservedSandbox>,
        template: &Template,
    ) -> Result<Vec<ConfiguredSandbox>, EngineError> {
        let mut results: Vec<_> = futures_util::stream::iter(reserved)
            .map(|reserved| self.start_one(reserved, template.clone()))
            .buffered(CONCURRENT_STARTS)
            .collect()
            .await;
        match results.iter().position(Result::is_err) {
            None => Ok(results.into_iter().flatten().collect()),
            Some(failed) => {
                let error = results.swap_remove(failed);
                self.discard(results.into_iter().flatten().collect()).await;
                Err(error.err().unwrap_or(EngineError::Daemon(DaemonError::TaskLost)))
            }
        }
    }

    async fn start_one(
        &self,
        reserved: ReservedSandbox,
        template: Template,
    ) -> Result<ConfiguredSandbox, EngineError> {
        let provisioner = &self.creation.services.provisioner;
        let provisioned = provisioner.start(reserved, template, self.config.isolation).await?;
        self.creation.configure(provisioned, &self.config).await
    }

    async fn discard(&self, sandboxes: Vec<ConfiguredSandbox>) {
        for sandbox in sandboxes {
            self.creation.services.provisioner.discard(sandbox.0).await;
        }
    }

    /// Commits all records at once.
    async fn record(
        &self,
        source: &SandboxRecord,
        sandboxes: Vec<ConfiguredSandbox>,
        idempotency: Option<PendingIdempotencyRecord<Vec<SandboxRecord>>>,
    ) -> Result<Vec<Status>, EngineError> {
        let Services { stamped_store, counters, actors, .. } = self.creation.services;
        let now = stamped_store.now();
        let record = |sandbox: &ConfiguredSandbox| {
            new_record(now, &sandbox.0, source.account.clone(), self.config.clone())
        };
        let records: Vec<SandboxRecord> = sandboxes.iter().map(record).collect();
        let ids: Vec<_> = records.iter().map(|record| &record.id).collect();
        let forked = events::of_sandbox(source, now, EventKind::SandboxForked, json!({ "sandboxIds": ids }));
        let mut batch = records.iter().fold(Batch::new().event(forked), with_created);
        if let Some(idempotency) = idempotency {
            batch = batch.idempotency_record(idempotency.complete(&source.account, now, &records));
        }
        if let Err(error) = stamped_store.commit(batch).await {
            self.discard(sandboxes).await;
            return Err(error.into());
        }
        counters.created_cold(self.config.isolation).add(records.len() as u64);
        let started = sandboxes.into_iter().zip(records);
        Ok(started.map(|(sandbox, record)| start_actor(actors, sandbox.0, record)).collect())
    }
}
