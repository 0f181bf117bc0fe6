//! Carries out the build of one template.

use std::path::Path;
use std::sync::Arc;

use api::{BuildStep, SnapshotId, TemplateSteps};
use engine::{Engine, Template as Image, WorkInProgress};
use tokio_util::sync::CancellationToken;

use crate::blocking::interruptible;
use crate::build_permits::BuildPermit;
use crate::builder::{Base, Bases};
use crate::context::{Context, Hashes};
use crate::error::{BuildError, Ended};
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
    pub progress: &'a dyn Progress,
    pub work: &'a WorkInProgress,
}

/// Shows the progress of a build to those who read its template.
pub trait Progress: Send + Sync {
    fn show(&self, template: &Template);
}

impl Build<'_> {
    /// Builds the template, whose context is in the archive, and returns it with its result. The state is that of the caller.
    pub async fn run(
        &self,
        mut template: Template,
        archive: &Path,
        permit: &mut BuildPermit<'_>,
    ) -> Result<Template, Ended> {
        let context = self.context(&template, archive).await?;
        let content = template.content.clone();
        let parsed = self.plan(move |_| {
            let file = dockerfile::parse(&content.dockerfile)?;
            let base = file.base(&content.args)?;
            Ok((file, base))
        });
        let (file, base) = parsed.await?;
        let found = async {
            let found = self.bases.find(&template.account, &base.name).await;
            found.map_err(|error| Ended::Failed(error.in_line(base.line)))
        };
        let found = self.unless_stopped(found).await?;
        let isolation = template.content.config.isolation.max(found.isolation);
        template.content.config.isolation = isolation;
        let disk = &mut template.content.config.resources.disk_mb;
        *disk = (*disk).max(found.disk_mb);
        let root = keys::of_base(&found.identity, isolation.name());
        let (args, of_base) = (template.content.args.clone(), found.settings.clone());
        let plan = self.plan(move |stopped| {
            let mut plan = file.plan(&args, of_base)?;
            let (settings, unused_args) =
                (std::mem::take(&mut plan.settings), std::mem::take(&mut plan.unused_args));
            let steps = keyed_steps(plan, base.line, &root, &context, &|| stopped.is_cancelled())?;
            Ok((steps, Settings::from(settings), unused_args, Arc::new(context.without_hashes())))
        });
        let (steps, settings, unused_args, context) = plan.await?;
        for name in &unused_args {
            self.log.note(&format!("the build argument {name} is not declared by any ARG"));
        }
        template.content.settings = settings;
        let total = steps.len() + usize::from(template.content.start.is_some());
        template.content.steps = TemplateSteps { total: count(total), done: 0, cached: 0 };
        template.snapshots.clear();
        self.progress.show(&template);
        self.steps(&mut template, found, &steps, &context).await?;
        if let Some(start) = template.content.start.clone()
            && let Some(last) = steps.last()
        {
            self.start(&mut template, &start, &last.key, permit).await?;
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
                    self.completed(template).await;
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
        self.progress.show(template);
    }

    /// The next daemon begins behind this step: what interrupts the build later is not what interrupted it before. Without the cache
    /// it begins with the first step, so the step makes no difference.
    async fn completed(&self, template: &Template) {
        if !template.content.no_cache {
            self.work.progressed().await;
        }
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
            sandbox.carry_out(&step.step, context, step.target).await?;
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

    /// Does work that may take long on a thread of its own, which ends soon after the build is stopped.
    async fn plan<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CancellationToken) -> Result<T, BuildError> + Send + 'static,
    ) -> Result<T, Ended> {
        let planning = async {
            match interruptible(move |stopped| Ok(work(stopped))).await {
                Ok(done) => Ok(done?),
                Err(_) => Err(Ended::Stopping),
            }
        };
        self.unless_stopped(planning).await
    }

    /// Reads the context that the template has on the disk.
    async fn context(&self, template: &Template, archive: &Path) -> Result<Context, Ended> {
        if !template.content.has_context {
            return Ok(Context::default());
        }
        let archive = archive.to_owned();
        let read = self.plan(move |stopped| {
            let read = Context::read(archive, Hashes::Compute, stopped);
            read.map_err(|error| BuildError::new(error.to_string()))
        });
        read.await
    }

    /// Runs the start command. Where processes can be stored, its processes become part of the result.
    async fn start(
        &self,
        template: &mut Template,
        start: &Start,
        parent: &str,
        permit: &mut BuildPermit<'_>,
    ) -> Result<(), Ended> {
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
                // The steps of other builds may run while this one waits.
                let waiting = async {
                    permit.exchange_for_start(&template.account).await;
                    Ok(())
                };
                self.unless_stopped(waiting).await?;
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
