//! Runs accepted builds: waits for a permit, builds, and records the end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId, TemplateError, TemplateState};
use base::blocking;
use engine::{DaemonError, EngineError, WorkInProgress};
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
        begun.map_err(not_begun)
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
        running.await.map_err(|ended| too_late(ended, timeout))
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
        let removed = blocking(move || base::allow_missing(std::fs::remove_file(context)));
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
        let snapshot =
            template.snapshots.last().and_then(|id| engine.any_snapshot(&template.account, id).ok());
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

/// Why a build is not begun.
fn not_begun(error: EngineError) -> Ended {
    match error {
        EngineError::Daemon(DaemonError::GaveUp(given_up)) => {
            let message = format!(
                "the service ended unexpectedly {} times while the build was at the same step; it is not begun again; \
                 change the step, or request the build again",
                given_up.interruptions
            );
            BuildError::new(message).into()
        }
        error => error.into(),
    }
}

/// The end of a build that was stopped at its timeout, in the line that it had reached.
fn too_late(ended: Ended, timeout: Duration) -> Ended {
    match ended {
        Ended::Failed(error) => {
            let message = format!("the build took longer than {} ms", timeout.as_millis());
            Ended::Failed(BuildError { message, line: error.line })
        }
        Ended::Stopping => Ended::Stopping,
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

#[cfg(test)]
mod tests {
    use rules::GaveUp;

    use super::*;
    use crate::template::tests::template;

    const NOW: TimeMs = TimeMs(5000);

    fn failed(message: &str, line: Option<usize>) -> Ended {
        Ended::Failed(BuildError { message: message.to_owned(), line })
    }

    /// State, message and line after a build without a result.
    fn end(ended: Ended, cancelled: Option<CancelReason>) -> Option<(TemplateState, String, Option<u32>)> {
        let latest = template(1, 1, TemplateState::Building);
        let finished = finished(&latest, Err(ended), cancelled, NOW)?;
        assert_eq!((finished.finished_at, &finished.id), (Some(NOW), &latest.id));
        let error = finished.content.error?;
        Some((finished.state, error.message, error.line))
    }

    #[test]
    fn a_failed_build_says_why_and_in_which_line() {
        let expected = (TemplateState::Failed, "line 4: why".to_owned(), Some(4));
        assert_eq!(end(failed("why", Some(4)), None), Some(expected));
        let expected = (TemplateState::Failed, "why".to_owned(), None);
        assert_eq!(end(failed("why", None), None), Some(expected));
        // A line that no message can have.
        assert_eq!(end(failed("why", Some(usize::MAX)), None).unwrap().2, None);
    }

    #[test]
    fn a_cancelled_build_says_who_cancelled_it_and_not_where_it_was() {
        for reason in [CancelReason::Request, CancelReason::Replaced, CancelReason::Abandoned] {
            let expected = (TemplateState::Cancelled, reason.message().to_owned(), None);
            assert_eq!(end(failed("the build was stopped", Some(4)), Some(reason)), Some(expected));
        }
    }

    #[test]
    fn a_build_that_the_daemon_stops_is_not_over() {
        for cancelled in [None, Some(CancelReason::Request)] {
            assert_eq!(end(Ended::Stopping, cancelled), None);
        }
    }

    #[test]
    fn a_build_that_ends_before_it_is_cancelled_is_ready() {
        let result = template(1, 1, TemplateState::Building);
        let finished = finished(&result.clone(), Ok(result), Some(CancelReason::Request), NOW).unwrap();
        assert_eq!((finished.state, finished.content.error), (TemplateState::Ready, None));
    }

    #[test]
    fn tags_that_changed_during_a_build_stay_changed() {
        let before = template(1, 1, TemplateState::Building);
        let mut latest = before.clone();
        latest.content.tags = vec!["new".to_owned()];
        for result in [Ok(before), Err(failed("why", None))] {
            let finished = finished(&latest, result, None, NOW).unwrap();
            assert_eq!(finished.content.tags, ["new"]);
        }
    }

    #[test]
    fn a_failed_build_keeps_its_progress() {
        let mut latest = template(1, 1, TemplateState::Building);
        latest.content.steps.done = 3;
        let finished = finished(&latest, Err(failed("why", None)), None, NOW).unwrap();
        assert_eq!(finished.content.steps.done, 3);
    }

    fn build_error(ended: Ended) -> Option<BuildError> {
        match ended {
            Ended::Failed(error) => Some(error),
            Ended::Stopping => None,
        }
    }

    #[test]
    fn a_late_build_names_its_timeout_and_the_line_that_it_reached() {
        let late =
            build_error(too_late(failed("the build was stopped", Some(7)), Duration::from_millis(1500)));
        assert_eq!(late, Some(BuildError::at(7, "the build took longer than 1500 ms")));
        assert_eq!(build_error(too_late(Ended::Stopping, Duration::ZERO)), None);
    }

    #[test]
    fn a_build_that_ended_daemons_is_given_up_with_the_number() {
        let kind = RepeatableWork::TemplateBuild;
        let gave_up = GaveUp { kind, subject: "tpl".to_owned(), interruptions: 2 };
        let error = build_error(not_begun(EngineError::Daemon(DaemonError::GaveUp(gave_up)))).unwrap();
        assert!(error.message.contains("unexpectedly 2 times") && error.line.is_none(), "{error}");
        assert_eq!(build_error(not_begun(EngineError::Daemon(DaemonError::Stopping))), None);
    }
}
