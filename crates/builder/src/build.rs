//! Carries out the build of one template.

use std::path::Path;
use std::sync::Arc;

use api::{BuildStep, SnapshotId, TemplateSteps};
use engine::{Engine, Template as Image};
use tokio_util::sync::CancellationToken;

use crate::builder::{Base, Bases};
use crate::context::Context;
use crate::error::{BuildError, Ended};
use crate::incoming::blocking;
use crate::keyed_steps::{KeyedStep, keyed_steps};
use crate::keys;
use crate::log::BuildLog;
use crate::start;
use crate::step::StepSandbox;
use crate::template::{Settings, Start, Template};

/// What a build needs.
pub struct Build<'a> {
    pub engine: &'a Engine,
    pub bases: &'a dyn Bases,
    pub log: &'a BuildLog,
    /// Ends the build early.
    pub stop: &'a CancellationToken,
    /// Records the progress of the build.
    pub progress: &'a (dyn Fn(&Template) + Send + Sync),
}

impl Build<'_> {
    /// Builds the template, and returns it with its result. The state is that of the caller.
    pub async fn run(&self, mut template: Template, context: Arc<Context>) -> Result<Template, Ended> {
        let file = dockerfile::parse(&template.content.dockerfile)?;
        let base = file.base(&template.content.args)?;
        let found = async {
            let found = self.bases.find(&template.account, &base.name).await;
            found.map_err(|error| Ended::Failed(error.in_line(base.line)))
        };
        let found = self.unless_stopped(found).await?;
        let isolation = template.content.config.isolation.max(found.isolation);
        template.content.config.isolation = isolation;
        let disk = &mut template.content.config.resources.disk_mb;
        *disk = (*disk).max(found.disk_mb);
        let plan = file.plan(&template.content.args, found.settings.clone())?;
        for name in &plan.unused_args {
            self.log.note(&format!("the build argument {name} is not declared by any ARG"));
        }
        let settings = Settings::from(plan.settings.clone());
        let root = keys::of_base(&found.identity, isolation.name());
        let steps = keyed_steps(plan, base.line, root, Arc::clone(&context)).await?;
        template.content.settings = settings;
        let total = steps.len() + usize::from(template.content.start.is_some());
        template.content.steps = TemplateSteps { total: count(total), done: 0, cached: 0 };
        template.snapshots.clear();
        (self.progress)(&template);
        self.steps(&mut template, found, &steps, &context).await?;
        if let Some(start) = template.content.start.clone()
            && let Some(last) = steps.last()
        {
            self.start(&mut template, &start, &last.key).await?;
        }
        template.content.size_bytes = self.size(&template);
        Ok(template)
    }

    async fn steps(
        &self,
        template: &mut Template,
        base: Base,
        steps: &[KeyedStep],
        context: &Arc<Context>,
    ) -> Result<(), Ended> {
        let cached = self.cached(template, steps);
        for (number, step) in steps.iter().enumerate() {
            let is_cached = number < cached.len();
            self.log.step(&BuildStep {
                number: count(number + 1),
                total: template.content.steps.total,
                line: count(step.step.line),
                text: step.step.text.clone(),
                cached: is_cached,
            });
            match cached.get(number) {
                Some(snapshot) => template.snapshots.extend(snapshot.clone()),
                None => {
                    let image = match template.snapshots.last() {
                        Some(snapshot) => self.engine.step_template(&template.account, snapshot)?,
                        None => base.image.clone(),
                    };
                    let taken = self.step(template, image, step, context).await;
                    let taken = taken.map_err(|ended| in_line(ended, step.step.line))?;
                    template.snapshots.push(taken);
                }
            }
            self.advance(template, is_cached);
        }
        Ok(())
    }

    /// The snapshots of the steps up to the last one that has one. Earlier ones may have been deleted.
    fn cached(&self, template: &Template, steps: &[KeyedStep]) -> Vec<Option<SnapshotId>> {
        if template.content.no_cache {
            return Vec::new();
        }
        let found = steps.iter().map(|step| {
            self.engine.find_step(&template.account, &step.key).map(|snapshot| snapshot.id.clone())
        });
        let mut found: Vec<_> = found.collect();
        let end = found.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        found.truncate(end);
        found
    }

    fn advance(&self, template: &mut Template, is_cached: bool) {
        template.content.steps.done += 1;
        template.content.steps.cached += u32::from(is_cached);
        (self.progress)(template);
    }

    async fn step(
        &self,
        template: &Template,
        image: Image,
        step: &KeyedStep,
        context: &Arc<Context>,
    ) -> Result<SnapshotId, Ended> {
        let sandbox = StepSandbox::create(self.engine, template, image, self.log).await?;
        let work = async {
            sandbox.carry_out(&step.step, context, step.selection.clone()).await?;
            let snapshot = sandbox.snapshot(step.key.clone(), false).await?;
            Ok(snapshot.id.clone())
        };
        let done = self.unless_stopped(work).await;
        sandbox.end().await;
        done
    }

    async fn unless_stopped<T>(&self, work: impl Future<Output = Result<T, Ended>>) -> Result<T, Ended> {
        match self.stop.run_until_cancelled(work).await {
            Some(done) => done,
            // The caller knows why.
            None => Err(BuildError::new("the build was stopped").into()),
        }
    }

    /// Runs the start command. Where processes can be stored, its processes become part of the result.
    async fn start(&self, template: &mut Template, start: &Start, parent: &str) -> Result<(), Ended> {
        let settings = template.content.settings.clone();
        let key = keys::of_start(parent, &settings.shell(&start.command), start.ready.as_deref());
        let cached = Some(&key).filter(|_| !template.content.no_cache);
        let cached = cached.and_then(|key| self.engine.find_step(&template.account, key));
        let steps = template.content.steps;
        self.log.step(&BuildStep {
            number: steps.total,
            total: steps.total,
            line: 0,
            text: format!("start command: {}", start.command),
            cached: cached.is_some(),
        });
        let is_cached = cached.is_some();
        let memory = self.engine.can_store_processes(template.content.config.isolation);
        let snapshot = match (cached, template.snapshots.last()) {
            (Some(snapshot), _) => Some(snapshot.id.clone()),
            (None, Some(last)) => {
                let image = self.engine.step_template(&template.account, last)?;
                let sandbox = StepSandbox::create(self.engine, template, image, self.log).await?;
                let work = async {
                    start::start(sandbox.handle(), &settings, start, Some(self.log)).await?;
                    if !memory {
                        return Ok(None);
                    }
                    let snapshot = sandbox.snapshot(key, true).await?;
                    Ok(Some(snapshot.id.clone()))
                };
                let done = self.unless_stopped(work).await;
                sandbox.end().await;
                done?
            }
            (None, None) => None,
        };
        template.content.memory = snapshot.is_some();
        template.snapshots.extend(snapshot);
        self.advance(template, is_cached);
        Ok(())
    }

    fn size(&self, template: &Template) -> u64 {
        let bytes = template.snapshots.iter().filter_map(|id| self.engine.step(&template.account, id).ok());
        bytes.map(|snapshot| snapshot.bytes).sum()
    }
}

fn in_line(ended: Ended, line: usize) -> Ended {
    match ended {
        Ended::Failed(error) => Ended::Failed(error.in_line(line)),
        Ended::Stopping => Ended::Stopping,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Reads the context that a template has on the disk.
pub async fn read_context(template: &Template, archive: &Path) -> Result<Arc<Context>, Ended> {
    if !template.content.has_context {
        return Ok(Arc::new(Context::empty()));
    }
    let archive = archive.to_owned();
    let read = blocking(move || Context::read(archive)).await;
    read.map(Arc::new).map_err(|error| BuildError::new(error.to_string()).into())
}
