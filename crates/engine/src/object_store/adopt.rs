//! Adopts a hibernated sandbox that another host has stored: it continues here with its id, its processes and its disk.
//!
//! ```text
//! check the isolation -> fetch the copy -> claim it by a note -> start the sandbox -> commit its record -> withdraw the copy
//! ```
//!
//! If a step before the commit fails, the note is removed. If the daemon dies, the note stays, and this host can try again. The copy stays
//! until the record is committed.

use std::sync::Arc;

use api::{EventKind, SandboxId};
use archive::Manifest;
use rules::{IsolationRules, RepeatableWork};
use serde_json::json;
use store::Batch;

use super::fetch::Fetch;
use super::find::document;
use crate::capacity::provision::ProvisionedSandbox;
use crate::create::{Creation, new_record, start_actor};
use crate::error::{DaemonError, EngineError, SandboxError, SnapshotError};
use crate::record::events;
use crate::record::interruptions::Affected;
use crate::record::status::{ResumeResult, Status};
use crate::services::Services;
use crate::snapshots::{Copies, SandboxDocument};
use crate::template::Template;

/// The note in the event of an adopted sandbox.
const NOTE: &str = "another host has stored it; it continues on this one";

/// Adopts a sandbox of the account that this host has never had. `isolation` are the rules of the account on this host.
pub async fn adopt(
    services: &Arc<Services>,
    account: &str,
    id: &SandboxId,
    isolation: &IsolationRules,
) -> Result<ResumeResult, EngineError> {
    let unknown = || EngineError::Sandbox(SandboxError::NotFound { terminated: None });
    let Some(copies) = &services.copies else { return Err(unknown()) };
    let transfer = copies.adoption(id);
    let _one = transfer.lock().await;
    let store = services.stamped_store.store();
    if services.registry.find(id).is_some() || store.get_for(account, id).await?.is_some() {
        return Err(unknown());
    }
    let manifest = copies.archive.manifest(id.as_str()).await?.ok_or_else(unknown)?;
    // This host has ended what it has stored itself and has no record of.
    if manifest.account != account || copies.archive.is_own(&manifest) {
        return Err(unknown());
    }
    let document: SandboxDocument = document(&manifest)?;
    check_isolation(copies, &document, isolation)?;
    // Its account may have given the name to a sandbox of this host meanwhile.
    let name = document.config().name().map(str::to_owned);
    let _name = services.registry.names.reserve(account, name.as_deref())?;
    let adoption = Adoption { services, copies, account, id, manifest: &manifest, document };
    let affected = Affected { account, sandbox: id };
    let work = services.interruptions.begin(RepeatableWork::Adoption, id.as_str(), Some(affected)).await?;
    let adopted = adoption.run().await;
    work.end().await;
    adopted
}

/// Refuses a sandbox that this host would not have created with its isolation. The host that has stored it may have had other rules.
fn check_isolation(
    copies: &Copies,
    document: &SandboxDocument,
    rules: &IsolationRules,
) -> Result<(), EngineError> {
    let images = copies.images_below(document.images(), document.image().1);
    let minimum = images.iter().map(|image| rules.minimum(image)).max().unwrap_or_default();
    let isolation = document.config().isolation;
    if isolation < minimum {
        return Err(SnapshotError::WeakIsolation { isolation, minimum }.into());
    }
    Ok(())
}

struct Adoption<'a> {
    services: &'a Arc<Services>,
    copies: &'a Arc<Copies>,
    account: &'a str,
    id: &'a SandboxId,
    manifest: &'a Manifest,
    document: SandboxDocument,
}

impl Adoption<'_> {
    async fn run(&self) -> Result<ResumeResult, EngineError> {
        let Self { services, copies, id, manifest, .. } = self;
        let fetched = services.tasks.until_stopped(self.fetch()).await;
        let template = fetched.ok_or(DaemonError::Stopping)??;
        if !copies.archive.adopt(&manifest.host, id.as_str()).await? {
            return Err(SnapshotError::AdoptedElsewhere.into());
        }
        let adopted = self.start(template).await;
        if adopted.is_err()
            && let Err(error) = copies.archive.give_back(&manifest.host, id.as_str()).await
        {
            tracing::warn!(%id, %error, "cannot give back a sandbox whose adoption failed; only this host can adopt it");
        }
        adopted
    }

    async fn fetch(&self) -> Result<Template, EngineError> {
        let Services { snapshots, host, .. } = &**self.services;
        let (image, digest) = self.document.image();
        let Some(layers) = self.copies.image_layers(digest) else {
            return Err(
                SnapshotError::OtherImage { image: image.to_owned(), digest: digest.to_owned() }.into()
            );
        };
        let copy = Arc::new(self.document.copy(self.account, host.driver(), layers));
        let template = snapshots.template_of(&copy);
        let hold = snapshots.hold(&copy.layers, Some(&copy.id));
        let (services, copies) = (Arc::clone(self.services), Arc::clone(self.copies));
        Fetch { services, copies, stored_as: self.manifest.id.clone(), record: copy, hold }.run().await?;
        Ok(template)
    }

    async fn start(&self, template: Template) -> Result<ResumeResult, EngineError> {
        let provisioner = &self.services.provisioner;
        let config = self.document.config();
        let creation = Creation { services: self.services, account: self.account };
        let reserved = creation.reserve(config.resources).await?.with_id(self.id.clone());
        let provisioned = provisioner.start(reserved, template, config.isolation).await?;
        let configured = creation.configure(provisioned, config).await?;
        self.commit(configured.0).await
    }

    async fn commit(&self, sandbox: ProvisionedSandbox) -> Result<ResumeResult, EngineError> {
        let Services { stamped_store, provisioner, actors, counters, .. } = &**self.services;
        let now = stamped_store.now();
        let new = new_record(now, &sandbox, self.account.to_owned(), self.document.config().clone());
        let (record, paused_duration_ms) = self.document.continue_as(new, now);
        let data = json!({ "pausedDurationMs": paused_duration_ms, "note": NOTE });
        let event = events::of_sandbox(&record, now, EventKind::SandboxResumed, data);
        if let Err(error) = stamped_store.commit(Batch::new().put(record.clone()).event(event)).await {
            provisioner.discard(sandbox).await;
            return Err(error.into());
        }
        let _: Status = start_actor(actors, sandbox, record);
        counters.sandboxes_adopted.add(1);
        if let Err(error) = self.copies.archive.withdraw(self.id.as_str()).await {
            tracing::warn!(id = %self.id, %error, "cannot withdraw the copy of an adopted sandbox; the next start retries");
        }
        Ok(ResumeResult { id: self.id.clone(), resumed_at: now, paused_duration_ms })
    }
}
