//! Runs accepted builds: waits for a permit, builds, and records the end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId, TemplateError, TemplateState};
use base::blocking;
use engine::{EngineError, WorkInProgress};
use rules::{RepeatableWork, TimeMs};
use serde_json::json;
use store::{Batch, NewEvent};

use crate::build::bases::Bases;
use crate::build::permits::BuildPermit;
use crate::build::{Build, BuildProgress};
use crate::builder::{Builder, BuilderState, random};
use crate::error::{BuildError, Ended};
use crate::registry::{CancelReason, RegisteredTemplate};
use crate::template::Template;
use crate::template::files::context_of;

impl Builder {
    /// Starts the task of a build. It ends with the build, or is dropped when the daemon stops; the next daemon continues it.
    pub fn spawn(&self, entry: RegisteredTemplate, bases: &Arc<dyn Bases>) {
        let (builder, bases) = (self.clone(), Arc::clone(bases));
        self.shared.tasks.spawn(async move {
            let mut building = pin!(builder.build(&entry, &*bases));
            tokio::select! {
                () = &mut building => return,
                () = entry.polls.abandoned() => entry.cancel(CancelReason::Abandoned),
            }
            building.await;
        });
    }

    /// Runs a build to its end, unless the builder stops.
    async fn build(&self, entry: &RegisteredTemplate, bases: &dyn Bases) {
        let BuilderState { registry, stopping, .. } = &*self.shared;
        let RegisteredTemplate { template, stop, .. } = entry;
        let waiting = stop.run_until_cancelled(self.wait_for_permit(template));
        let Some(permit) = stopping.run_until_cancelled(waiting).await else { return };
        // Until the end is recorded.
        let Some(mut permit) = permit else {
            return self.end(entry, Err(BuildError::new("the build was stopped").into())).await;
        };
        // Before anything of the build is read: it may be what ends the daemon.
        let work = match self.begin(template).await {
            Ok(work) => work,
            Err(ended) => return self.end(entry, Err(ended)).await,
        };
        let latest = registry.find(&template.account, &template.id).map(|entry| entry.template);
        let latest = latest.unwrap_or_else(|_| Arc::clone(template));
        let building = Template { state: TemplateState::Building, ..Template::clone(&latest) };
        self.record(&building, Batch::new()).await;
        let running = self.build_in_time(entry, &building, (bases, &work), &mut permit);
        let result = stopping.run_until_cancelled(running).await;
        self.end(entry, result.unwrap_or(Err(Ended::Stopping))).await;
        // Also if the daemon stops in an orderly way, which is not the fault of the build.
        work.end().await;
    }

    /// Waits for a permit, and if daemons have ended during the build also for the end of other such builds.
    async fn wait_for_permit(&self, template: &Template) -> BuildPermit<'_> {
        let BuilderState { engine, permits, .. } = &*self.shared;
        match engine.interruptions(RepeatableWork::TemplateBuild, template.id.as_str()) {
            0 => permits.acquire(&template.account).await,
            _ => permits.acquire_alone(&template.account).await,
        }
    }

    /// Counts the start of a build. Fails if it was interrupted too often since one of its steps was completed.
    async fn begin(&self, template: &Template) -> Result<WorkInProgress, Ended> {
        let kind = RepeatableWork::TemplateBuild;
        let begun = self.shared.engine.begin_work(kind, template.id.as_str()).await;
        begun.map_err(|error| match error {
            EngineError::GaveUp(given_up) => {
                let message = format!(
                    "the service ended unexpectedly {} times while the build was at the same step; it is not begun again; \
                     change the step, or request the build again",
                    given_up.interruptions
                );
                BuildError::new(message).into()
            }
            error => error.into(),
        })
    }

    /// Records the result of a build.
    async fn end(&self, entry: &RegisteredTemplate, result: Result<Template, Ended>) {
        let BuilderState { registry, engine, .. } = &*self.shared;
        let RegisteredTemplate { template, ended, .. } = entry;
        let latest = registry.find(&template.account, &template.id).map(|entry| entry.template);
        let latest = latest.unwrap_or_else(|_| Arc::clone(template));
        if let Some(finished) = finished(&latest, result, entry.cancelled(), engine.now()) {
            self.finish(entry, finished).await;
            ended.cancel();
        }
    }

    async fn build_in_time(
        &self,
        entry: &RegisteredTemplate,
        building: &Template,
        (bases, work): (&dyn Bases, &WorkInProgress),
        permit: &mut BuildPermit<'_>,
    ) -> Result<Template, Ended> {
        let BuilderState { settings, engine, spool, .. } = &*self.shared;
        let stop = entry.stop.child_token();
        let build = Build { engine, bases, log: &entry.log, stop: &stop, progress: self, work, spool };
        let archive = context_of(&settings.dir, &building.id);
        let mut running = pin!(build.run(building.clone(), &archive, permit));
        let timeout = Duration::from_millis(building.content.config.timeout_ms);
        tokio::select! {
            done = &mut running => return done,
            () = tokio::time::sleep(timeout) => stop.cancel(),
        }
        // It ends its sandbox first.
        let done = running.await;
        let late = || BuildError::new(format!("the build took longer than {} ms", timeout.as_millis()));
        done.map_err(|ended| match ended {
            Ended::Failed(error) => Ended::Failed(BuildError { line: error.line, ..late() }),
            Ended::Stopping => Ended::Stopping,
        })
    }

    /// Records the end of a build.
    async fn finish(&self, entry: &RegisteredTemplate, template: Template) {
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
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        if let Err(error) = removed.await {
            tracing::error!(%error, "cannot remove a build context");
        }
        self.trim_logs(&template.account).await;
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

    /// An event about a template, for the batch that commits its record.
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

impl BuildProgress for Builder {
    fn show(&self, template: &Template) {
        self.shared.registry.advance(template.clone());
    }
}

/// The template after its build; `None` if the next daemon continues it.
fn finished(
    latest: &Template,
    result: Result<Template, Ended>,
    cancelled: Option<CancelReason>,
    now: TimeMs,
) -> Option<Template> {
    let (mut template, state, error) = match (result, cancelled) {
        (Ok(template), _) => (template, TemplateState::Ready, None),
        (Err(Ended::Stopping), _) => return None,
        (Err(Ended::Failed(_)), Some(reason)) => {
            let error = TemplateError { message: reason.message().to_owned(), line: None };
            (latest.clone(), TemplateState::Cancelled, Some(error))
        }
        (Err(Ended::Failed(error)), None) => {
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
