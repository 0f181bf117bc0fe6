//! Runs accepted builds: waits for a permit, builds, and records the end.

use std::pin::pin;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use api::{EventKind, SandboxId, TemplateError, TemplateState};
use rules::TimeMs;
use serde_json::json;
use store::{Batch, NewEvent};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::build::{Build, read_context};
use crate::builder::{Bases, Builder, Shared, random};
use crate::context::Context;
use crate::error::{BuildError, Ended};
use crate::files::context_of;
use crate::incoming::blocking;
use crate::registry::Entry;
use crate::template::Template;

impl Builder {
    pub fn spawn(&self, entry: Entry, context: Option<Arc<Context>>, bases: &Arc<dyn Bases>) {
        let (builder, bases) = (self.clone(), Arc::clone(bases));
        self.shared.tasks.spawn(async move {
            let stopping = builder.shared.stopping.clone();
            if stopping.run_until_cancelled(builder.build(&entry, context, &*bases)).await.is_some() {
                entry.ended.cancel();
            }
        });
    }

    /// Runs a build to its end.
    async fn build(&self, entry: &Entry, context: Option<Arc<Context>>, bases: &dyn Bases) {
        let Shared { registry, engine, .. } = &*self.shared;
        let Entry { template, cancel, .. } = entry;
        let building = Template { state: TemplateState::Building, ..Template::clone(template) };
        let result = match cancel.run_until_cancelled(self.permit(&template.account)).await {
            None => Err(BuildError::new("the build was cancelled").into()),
            Some(_permit) => {
                self.record(&building, Batch::new()).await;
                self.build_in_time(entry, &building, context, bases).await
            }
        };
        let latest = registry.find(&template.account, &template.id).map(|entry| entry.template);
        let latest = latest.unwrap_or_else(|_| Arc::new(building));
        if let Some(finished) = finished(&latest, result, cancel.is_cancelled(), engine.now()) {
            self.finish(entry, finished).await;
        }
    }

    /// Waits until the account and the host may begin another build.
    async fn permit(&self, account: &str) -> (Option<OwnedSemaphorePermit>, Option<SemaphorePermit<'_>>) {
        let Shared { permits, account_permits, settings, .. } = &*self.shared;
        let own = {
            let mut all = account_permits.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|_, semaphore| semaphore.strong_count() > 0);
            let found = all.get(account).and_then(Weak::upgrade);
            let own =
                found.unwrap_or_else(|| Arc::new(Semaphore::new(settings.concurrent.div_ceil(2).max(1))));
            all.insert(account.to_owned(), Arc::downgrade(&own));
            own
        };
        // Neither semaphore is ever closed. The account's comes first: few builds of an account wait for the host's.
        (own.acquire_owned().await.ok(), permits.acquire().await.ok())
    }

    async fn build_in_time(
        &self,
        entry: &Entry,
        building: &Template,
        context: Option<Arc<Context>>,
        bases: &dyn Bases,
    ) -> Result<Template, Ended> {
        let Shared { registry, settings, engine, .. } = &*self.shared;
        let stop = entry.cancel.child_token();
        let progress = |template: &Template| registry.advance(template.clone());
        let build = Build { engine, bases, log: &entry.log, stop: &stop, progress: &progress };
        let archive = context_of(&settings.dir, &building.id);
        let mut work = pin!(async {
            let context = match context {
                Some(context) => context,
                None => read_context(building, &archive).await?,
            };
            build.run(building.clone(), context).await
        });
        let timeout = Duration::from_millis(building.content.config.timeout_ms);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(timeout) => stop.cancel(),
        }
        // It ends its sandbox first.
        let done = work.await;
        let late = || BuildError::new(format!("the build took longer than {} ms", timeout.as_millis()));
        done.map_err(|ended| match ended {
            Ended::Failed(error) => Ended::Failed(BuildError { line: error.line, ..late() }),
            Ended::Stopping => Ended::Stopping,
        })
    }

    /// Records the end of a build.
    async fn finish(&self, entry: &Entry, template: Template) {
        let kind = match template.state {
            TemplateState::Ready => EventKind::TemplateReady,
            _ => EventKind::TemplateFailed,
        };
        let data = json!({
            "templateId": template.id, "name": template.name, "version": template.version,
            "state": template.state, "steps": template.content.steps,
            "message": template.content.error.as_ref().map(|error| error.message.as_str()),
        });
        let event = self.event(&template, kind, data, None);
        match &template.content.error {
            Some(error) => entry.log.note(&error.message),
            None => entry.log.note(&format!("template {}:{} is ready", template.name, template.version)),
        }
        self.shared.counters.finished(&template);
        self.record(&template, Batch::new().event(event)).await;
        entry.log.complete();
        let context = context_of(&self.shared.settings.dir, &template.id);
        let removed = blocking(move || match std::fs::remove_file(context) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        });
        if let Err(error) = removed.await {
            tracing::error!(%error, "cannot remove a build context");
        }
        self.collect(&template.account).await;
    }

    /// Commits a template, and registers it.
    async fn record(&self, template: &Template, batch: Batch) {
        if let Err(error) = self.shared.store.commit(batch.put_template(template.to_record())).await {
            // The next daemon finds the build unfinished, and continues it.
            tracing::error!(template = %template.id, %error, "cannot record the state of a build");
        }
        self.shared.registry.update(Arc::new(template.clone()));
    }

    pub fn event(
        &self,
        template: &Template,
        kind: EventKind,
        data: serde_json::Value,
        once: Option<String>,
    ) -> NewEvent {
        let engine = &self.shared.engine;
        let snapshot = template.snapshots.last().and_then(|id| engine.step(&template.account, id).ok());
        NewEvent {
            // Events belong to sandboxes: this one to that of the last step.
            sandbox: snapshot
                .map_or_else(|| SandboxId::from_random(random()), |snapshot| snapshot.sandbox.clone()),
            account: template.account.clone(),
            run: String::new(),
            at: engine.now(),
            kind,
            data,
            once,
        }
    }
}

/// The template after its build; `None` if the next daemon continues it.
fn finished(
    latest: &Template,
    result: Result<Template, Ended>,
    is_cancelled: bool,
    now: TimeMs,
) -> Option<Template> {
    let (mut template, state, error) = match result {
        Ok(template) => (template, TemplateState::Ready, None),
        Err(Ended::Stopping) => return None,
        Err(Ended::Failed(_)) if is_cancelled => {
            let error = TemplateError { message: "the build was cancelled".to_owned(), line: None };
            (latest.clone(), TemplateState::Cancelled, Some(error))
        }
        Err(Ended::Failed(error)) => {
            let line = error.line.and_then(|line| u32::try_from(line).ok());
            let error = TemplateError { message: error.to_string(), line };
            (latest.clone(), TemplateState::Failed, Some(error))
        }
    };
    template.state = state;
    // They may have changed since the build began.
    template.content.tags.clone_from(&latest.content.tags);
    template.finished_at = Some(now);
    template.content.error = error;
    Some(template)
}
