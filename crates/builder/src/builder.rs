//! The builder: accepts builds, runs them, and finds templates.

pub mod clean_up;
pub mod counters;
pub mod run;
pub mod tags;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use api::{BuildContextId, EventKind, Isolation, SandboxId, TemplateId};
use base::blocking;
use dockerfile::ImageSettings;
use engine::{Engine, Template as Image};
use permits::AccountPermits;
use rand::Rng;
use rules::{RepeatableWork, TimeMs};
use serde_json::json;
use store::{Batch, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::build::bases::Bases;
use crate::build::permits::BuildPermits;
use crate::build::start;
use crate::builder::counters::{BuildCounts, Counters};
use crate::context::contexts::Contexts;
use crate::context::incoming::Incoming;
use crate::context::spool::{LARGEST_PER_ACCOUNT, Spool, StoredContext};
use crate::error::{BuildError, BuilderError, Ended};
use crate::log::LogReader;
use crate::registry::{CancelReason, RegisteredTemplate, Registry};
use crate::template::files;
use crate::template::{NewTemplate, OtherBuilds, PendingTemplate, SharedTemplate, Template};

/// What the operator configures of builds.
#[derive(Debug, Clone)]
pub struct BuilderSettings {
    /// A directory that only the builder uses.
    pub dir: PathBuf,
    /// Builds at a time.
    pub concurrent: usize,
    /// The largest context.
    pub max_context_bytes: u64,
    /// Failed and cancelled builds are deleted after this time; 0 for never.
    pub retention_ms: u64,
    /// Most bytes of the logs of an account's finished builds; 0 for any number. The oldest are removed.
    pub log_bytes: u64,
}

/// All templates of this host. Clones refer to the same builder.
#[derive(Clone)]
pub struct Builder {
    pub(crate) shared: Arc<BuilderState>,
}

pub(crate) struct BuilderState {
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: BuilderSettings,
    pub(crate) registry: Registry,
    pub(crate) contexts: Contexts,
    pub(crate) counters: Counters,
    pub(crate) spool: Arc<Spool>,
    pub(crate) permits: BuildPermits,
    /// One for each account, held from the choice of a version until its template is registered.
    pub(crate) creating: AccountPermits,
    pub(crate) stopping: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

impl Builder {
    /// Reads the templates. [`Self::start`] continues the builds of an earlier daemon.
    pub async fn open(
        engine: Engine,
        store: Arc<dyn Store>,
        settings: BuilderSettings,
    ) -> Result<Self, BuilderError> {
        let registry = Registry::default();
        let records = store.templates().await?;
        let dir = settings.dir.clone();
        let entries = blocking(move || {
            std::fs::create_dir_all(&dir)?;
            let mut entries = Vec::new();
            for record in records {
                let id = record.id.clone();
                let template = match Template::from_record(record) {
                    Ok(template) => template,
                    Err(error) => {
                        tracing::error!(%id, %error, "cannot read the record of a template; it is left alone");
                        continue;
                    }
                };
                let log = files::log_of(&dir, &template)?;
                entries.push(RegisteredTemplate::new(template, log));
            }
            Ok::<_, BuilderError>(entries)
        })
        .await?;
        for entry in entries {
            registry.insert(entry);
        }
        let permits = BuildPermits::new(settings.concurrent);
        let host = engine.clone();
        let check_room = move |free_bytes| Ok(host.check_free_disk(free_bytes)?);
        let spool = Spool::new(settings.dir.clone(), settings.max_context_bytes, Box::new(check_room));
        let shared = BuilderState {
            engine,
            store,
            settings,
            registry,
            contexts: Contexts::default(),
            counters: Counters::default(),
            spool: Arc::new(spool),
            permits,
            creating: AccountPermits::new(1),
            stopping: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Continues the builds of an earlier daemon, and removes what none needs.
    pub async fn start(&self, bases: &Arc<dyn Bases>) {
        self.end_step_sandboxes().await;
        if let Err(error) = self.remove_unknown_files().await {
            tracing::error!(%error, "cannot remove the files of deleted templates");
        }
        let mut unfinished = self.shared.registry.all();
        unfinished.retain(|entry| !entry.template.state.is_final());
        let continues = |id: &str| unfinished.iter().any(|entry| entry.template.id.as_str() == id);
        self.shared.engine.forget_work_unless(RepeatableWork::TemplateBuild, continues).await;
        for entry in unfinished {
            entry.log.note("the service was restarted; the build continues");
            self.spawn(entry, bases);
        }
        let (stopping, cleaning) = (self.shared.stopping.clone(), self.clone().clean_up_regularly());
        self.shared.tasks.spawn(async move { stopping.run_until_cancelled(cleaning).await });
    }

    /// The builds since the daemon started, for metrics.
    pub fn counts(&self) -> BuildCounts {
        self.shared.counters.read()
    }

    /// The largest build context, which the endpoint for contexts enforces before it reads one.
    pub fn max_context_bytes(&self) -> u64 {
        self.shared.settings.max_context_bytes
    }

    /// Receives a build context of an account.
    pub fn incoming(&self, account: &str) -> Result<Incoming, BuilderError> {
        Incoming::new(&self.shared.spool, account)
    }

    /// Keeps a context for a build that is requested within the next hour. Returns when it expires.
    pub fn keep_context(&self, account: &str, context: StoredContext) -> (BuildContextId, TimeMs) {
        // By content: a request that is repeated with its context is the same request.
        let id = BuildContextId::from_random(context.digest);
        let (largest, now) = (self.max_context_bytes(), self.shared.engine.now());
        let expires_at = self.shared.contexts.add(account, id.clone(), context, largest, now);
        (id, expires_at)
    }

    /// An uploaded context.
    pub fn context(&self, account: &str, id: &BuildContextId) -> Result<StoredContext, BuilderError> {
        let found = self.shared.contexts.find(account, id, self.shared.engine.now());
        found.ok_or_else(|| {
            BuilderError::Context(format!("'{id}' does not exist or has expired; upload it again"))
        })
    }

    /// A text file of a context.
    pub async fn context_text(
        &self,
        account: &str,
        context: &StoredContext,
        path: String,
        most: u64,
    ) -> Result<String, BuilderError> {
        self.shared.spool.text(account, context, path, most).await
    }

    /// One context of several, each in a directory with its name.
    pub async fn merge_contexts(
        &self,
        account: &str,
        contexts: BTreeMap<String, StoredContext>,
    ) -> Result<StoredContext, BuilderError> {
        self.shared.spool.merge(account, contexts).await
    }

    /// Accepts a build. It runs in the background.
    pub async fn create(
        &self,
        account: &str,
        new: NewTemplate,
        bases: &Arc<dyn Bases>,
        idempotency: Option<PendingTemplate>,
    ) -> Result<SharedTemplate, BuilderError> {
        if self.shared.stopping.is_cancelled() {
            return Err(BuilderError::Stopping);
        }
        let (builder, account, bases) = (self.clone(), account.to_owned(), Arc::clone(bases));
        // Also if the caller stops waiting.
        let accepting = async move { builder.accept(&account, new, &bases, idempotency).await };
        self.shared.tasks.spawn(accepting).await.map_err(|_| BuilderError::Stopping)?
    }

    async fn accept(
        &self,
        account: &str,
        new: NewTemplate,
        bases: &Arc<dyn Bases>,
        idempotency: Option<PendingTemplate>,
    ) -> Result<SharedTemplate, BuilderError> {
        let BuilderState { engine, registry, settings, .. } = &*self.shared;
        let (dockerfile, args) = (new.dockerfile.clone(), new.args.clone());
        let checking = blocking(move || {
            let file = dockerfile::parse(&dockerfile)?;
            // Finds what does not depend on the base.
            file.plan(&args, &ImageSettings::default())?;
            Ok::<_, BuilderError>(file.base(&args)?)
        });
        let base = checking.await?;
        let _creating = self.shared.creating.acquire(account).await;
        let quotas = engine.quotas().of(account);
        let id = new.id.clone().unwrap_or_else(|| TemplateId::from_random(random()));
        let replaced = match new.others {
            OtherBuilds::Kept => Vec::new(),
            OtherBuilds::Replaced => registry.replaced_by(account, &new)?,
        };
        let version = registry.next_version(account, &new.name, quotas, replaced.len())?;
        let context_bytes = new.context.as_ref().map_or(0, |context| context.size_bytes);
        let allowed_bytes = LARGEST_PER_ACCOUNT.saturating_mul(settings.max_context_bytes);
        registry.check_contexts(account, context_bytes, allowed_bytes)?;
        let template = Template::new(id, account, version, base.name, &new, engine.now());
        let (dir, shared) = (settings.dir.clone(), template.clone());
        let stored = new.context.clone();
        let log = blocking(move || files::make(&dir, &shared, stored.as_ref())).await?;
        let mut batch = Batch::new().put_template(template.to_record());
        if let Some(idempotency) = idempotency {
            batch = batch.idempotency_record(idempotency.complete(account, template.created_at, &template));
        }
        if let Err(error) = self.shared.store.commit(batch).await {
            self.remove_files(&template.id).await;
            return Err(error.into());
        }
        let entry = RegisteredTemplate::new(template, log);
        let template = Arc::clone(&entry.template);
        registry.insert(entry.clone());
        self.spawn(entry, bases);
        for entry in replaced {
            entry.cancel(CancelReason::Replaced);
        }
        Ok(template)
    }

    /// The templates of an account, newest first.
    pub fn list(&self, account: &str) -> Vec<SharedTemplate> {
        self.shared.registry.of_account(account)
    }

    /// The template with this id, if it is one of the account.
    pub fn find(&self, account: &str, id: &TemplateId) -> Result<SharedTemplate, BuilderError> {
        Ok(self.shared.registry.find(account, id)?.template)
    }

    /// The ready template that an image of a create names.
    pub fn named(&self, account: &str, image: &str) -> Option<SharedTemplate> {
        self.shared.registry.named(account, image)
    }

    /// Those that `NAME`, `NAME:VERSION` or `NAME:TAG` means, newest first, whatever their states are.
    pub fn all_named(&self, account: &str, text: &str) -> Vec<SharedTemplate> {
        let mut named = self.shared.registry.of_account(account);
        named.retain(|template| template.name == text || template.is_named(text));
        named.sort_by_key(|template| Reverse(template.version));
        named
    }

    /// What sandboxes from a ready template begin with.
    pub fn image(&self, template: &Template) -> Result<Image, BuilderError> {
        let missing = || BuilderError::NotFound { id: template.id.to_string() };
        let snapshot = template.result().ok_or_else(missing)?;
        let image = self.shared.engine.template_of_any_snapshot(&template.account, snapshot)?;
        let env =
            template.content.settings.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
        Ok(Image { name: template.id.to_string(), env, ..image })
    }

    /// The smallest disk and memory, and the weakest isolation, of sandboxes from a ready template.
    pub fn minimum(&self, template: &Template) -> Result<(api::Resources, Isolation), BuilderError> {
        let missing = || BuilderError::NotFound { id: template.id.to_string() };
        let snapshot = template.result().ok_or_else(missing)?;
        let snapshot = self.shared.engine.any_snapshot(&template.account, snapshot)?;
        Ok((snapshot.resources, snapshot.isolation))
    }

    /// Runs the start command in a new sandbox that has no copies of its processes. Returns when it is ready.
    pub async fn run_start(&self, template: &Template, sandbox: &SandboxId) -> Result<(), BuildError> {
        let Some(command) = &template.content.start else { return Ok(()) };
        let handle = self.shared.engine.sandbox(&template.account, sandbox);
        match start::start(handle, &template.content.settings, command, None).await {
            Ok(()) => Ok(()),
            Err(Ended::Failed(error)) => Err(error),
            Err(Ended::Stopping) => Err(BuildError::new("the service is stopping")),
        }
    }

    /// A reader of the log of a build. `None` if the position is not one that a reader has returned.
    pub fn log(
        &self,
        account: &str,
        id: &TemplateId,
        position: u64,
    ) -> Result<Option<LogReader>, BuilderError> {
        Ok(self.shared.registry.find(account, id)?.log.read_from(position)?)
    }

    /// Counts a request of a client for the state of a build. One that asks often waits for the build, which is cancelled when the
    /// client has gone away.
    pub fn polled(&self, account: &str, id: &TemplateId) -> Result<(), BuilderError> {
        self.shared.registry.find(account, id)?.polls.record();
        Ok(())
    }

    /// Cancels a build, and waits for its end. A build that is over stays as it is.
    pub async fn cancel(&self, account: &str, id: &TemplateId) -> Result<SharedTemplate, BuilderError> {
        let entry = self.shared.registry.find(account, id)?;
        entry.cancel(CancelReason::Request);
        tokio::select! {
            () = entry.ended.cancelled() => self.find(account, id),
            () = self.shared.stopping.cancelled() => Err(BuilderError::Stopping),
        }
    }

    /// Deletes a template, after its build is cancelled. Sandboxes from it are not affected.
    pub async fn delete(&self, account: &str, id: &TemplateId) -> Result<TimeMs, BuilderError> {
        let template = self.cancel(account, id).await?;
        let now = self.shared.engine.now();
        let data = json!({ "templateId": id, "name": template.name, "version": template.version });
        let once = Some(format!("deletion of {id}"));
        let event = self.event(&template, EventKind::TemplateDeleted, data, once);
        let builder = self.clone();
        let deleting = async move {
            builder
                .shared
                .store
                .commit(Batch::new().delete_template(template.id.clone()).event(event))
                .await?;
            builder.shared.registry.remove(&template.id);
            builder.remove_files(&template.id).await;
            builder.collect(&template.account).await;
            Ok(now)
        };
        // Also if the caller stops waiting.
        self.shared.tasks.spawn(deleting).await.map_err(|_| BuilderError::Stopping)?
    }

    pub(crate) async fn remove_files(&self, id: &TemplateId) {
        let dir = self.shared.settings.dir.join(id.as_str());
        if let Err(error) = blocking(move || std::fs::remove_dir_all(dir)).await {
            tracing::error!(%id, %error, "cannot remove the files of a template; the next start removes them");
        }
    }

    /// Stops the builds. The next daemon continues them.
    pub async fn shutdown(&self) {
        self.shared.stopping.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

pub(crate) fn random() -> [u8; 20] {
    let mut random = [0; 20];
    rand::rng().fill_bytes(&mut random);
    random
}

#[cfg(test)]
mod tests;
