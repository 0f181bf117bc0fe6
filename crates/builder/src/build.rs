//! Carries out the build of one template.

pub mod bases;
pub mod foreign_files;
pub mod keyed_steps;
pub mod keys;
pub mod last_output;
pub mod output_log;
pub mod permits;
pub mod start;
pub mod step;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use api::{BuildStep, SnapshotId, TemplateSteps};
use dockerfile::{Dockerfile, Ineffective, Note, Origin, Work};
use engine::{Engine, SnapshotScope, Template as Image, WorkInProgress};
use tokio_util::sync::CancellationToken;

use crate::build::bases::{Base, Bases};
use crate::build::foreign_files::ForeignFiles;
use crate::build::keyed_steps::{KeyedStep, keyed_steps, steps_to_run};
use crate::build::permits::BuildPermit;
use crate::build::step::StepSandbox;
use crate::context::spool::Spool;
use crate::context::{Context, Hashes};
use crate::error::{BuildError, Ended};
use crate::interruptible::interruptible;
use crate::log::BuildLog;
use crate::template::{StartCommand, Template};

/// What a build needs.
pub struct Build<'a> {
    pub engine: &'a Engine,
    pub bases: &'a dyn Bases,
    pub log: &'a BuildLog,
    /// Ends the build early.
    pub stop: &'a CancellationToken,
    pub progress: &'a dyn BuildProgress,
    pub work: &'a WorkInProgress,
    /// For files on their way between sandboxes.
    pub spool: &'a Spool,
}

/// What the steps of a build begin with and copy from.
struct Inputs<'a> {
    /// By the names in the Dockerfile.
    bases: &'a BTreeMap<String, Base>,
    context: &'a Arc<Context>,
}

/// Where the result of a step is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepResult {
    New,
    /// An earlier build.
    Cached,
}

/// Shows the progress of a build to those who read its template.
pub trait BuildProgress: Send + Sync {
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
            let named = file.bases(&content.args)?;
            let line = file.base(&content.args)?.line;
            Ok((file, named, line))
        });
        let (file, named, line) = parsed.await?;
        let bases = self.bases(&mut template, named).await?;
        let (steps, context) = self.planned(&mut template, file, line, context, &bases).await?;
        self.progress.show(&template);
        let inputs = Inputs { bases: &bases, context: &context };
        self.steps(&mut template, &steps, &inputs).await?;
        if let Some(start) = template.content.start.clone()
            && let Some(last) = steps.last()
        {
            self.start(&mut template, &start, &last.key, permit).await?;
        }
        template.content.size_bytes = self.size(&template);
        Ok(template)
    }

    /// Finds the bases. The isolation and the disk of the steps are those that all of them need.
    async fn bases(
        &self,
        template: &mut Template,
        named: Vec<dockerfile::Base>,
    ) -> Result<BTreeMap<String, Base>, Ended> {
        let mut bases = BTreeMap::new();
        for base in named {
            let found = async {
                let found = self.bases.find(&template.account, &base.name).await;
                found.map_err(|error| Ended::Failed(error.in_line(base.line)))
            };
            let found = self.unless_stopped(found).await?;
            if let Some(stand_in) = &found.stand_in {
                self.log.note(&format!(
                    "line {}: {stand_in}; it may lack programs and users of the image that it stands for",
                    base.line
                ));
            }
            found.raise(&mut template.content.config);
            bases.insert(base.name, found);
        }
        Ok(bases)
    }

    /// The steps, with the template as it is before the first one.
    async fn planned(
        &self,
        template: &mut Template,
        file: Dockerfile,
        line: usize,
        context: Context,
        bases: &BTreeMap<String, Base>,
    ) -> Result<(Vec<KeyedStep>, Arc<Context>), Ended> {
        let isolation = template.content.config.isolation;
        let root =
            |(name, base): (&String, &Base)| (name.clone(), keys::of_base(&base.identity, isolation.name()));
        let roots: BTreeMap<String, String> = bases.iter().map(root).collect();
        let of_bases: BTreeMap<String, _> =
            bases.iter().map(|(name, base)| (name.clone(), base.settings.clone())).collect();
        let args = template.content.args.clone();
        let plan = self.plan(move |stopped| {
            let settings_of = |name: &str| of_bases.get(name).cloned().unwrap_or_default();
            let mut plan = file.plan_above(&args, &settings_of)?;
            let (settings, unused_args, notes) = (
                std::mem::take(&mut plan.settings),
                std::mem::take(&mut plan.unused_args),
                std::mem::take(&mut plan.notes),
            );
            let steps = keyed_steps(plan, line, &roots, &context, &|| stopped.is_cancelled())?;
            Ok((steps, settings, (unused_args, notes), Arc::new(context.without_hashes())))
        });
        let (steps, settings, (unused_args, notes), context) = plan.await?;
        for name in &unused_args {
            self.log.note(&format!("the build argument {name} is not declared by any ARG"));
        }
        // Commands of E2B sandboxes run as the user of their template.
        let has_effect =
            |note: &Note| note.instruction == Ineffective::User && template.content.config.default_user;
        for note in notes.iter().filter(|note| !has_effect(note)) {
            self.log.note(&note.to_string());
        }
        template.content.settings = settings;
        let total = steps.len() + usize::from(template.content.start.is_some());
        template.content.steps = TemplateSteps { total: count(total), done: 0, cached: 0 };
        template.snapshots.clear();
        Ok((steps, context))
    }

    async fn steps(
        &self,
        template: &mut Template,
        steps: &[KeyedStep],
        inputs: &Inputs<'_>,
    ) -> Result<(), Ended> {
        let stored = self.stored(template, steps);
        let runs = steps_to_run(steps, &|number| stored[number].is_some());
        let mut results: Vec<Option<SnapshotId>> = Vec::new();
        for (number, step) in steps.iter().enumerate() {
            self.log.step(&BuildStep {
                number: count(number + 1),
                total: template.content.steps.total,
                line: count(step.step.line),
                text: step.step.text.clone(),
                cached: !runs[number],
            });
            let result = if runs[number] {
                let taken = self.step(template, step, inputs, &results).await;
                let taken = taken.map_err(|ended| in_line(ended, step.step.line))?;
                template.snapshots.push(taken.clone());
                results.push(Some(taken));
                self.completed(template).await;
                StepResult::New
            } else {
                // The results of steps below a stored one may have been deleted.
                template.snapshots.extend(stored[number].clone());
                results.push(stored[number].clone());
                StepResult::Cached
            };
            self.advance(template, result);
        }
        Ok(())
    }

    /// The stored results of the steps.
    fn stored(&self, template: &Template, steps: &[KeyedStep]) -> Vec<Option<SnapshotId>> {
        let find = |step: &KeyedStep| {
            let found = self.engine.find_internal_snapshot(&template.account, &step.key);
            found.filter(|_| !template.content.no_cache).map(|snapshot| snapshot.id.clone())
        };
        steps.iter().map(find).collect()
    }

    /// What a sandbox above a base or the result of a step begins with.
    fn image(
        &self,
        template: &Template,
        origin: &Origin,
        inputs: &Inputs<'_>,
        results: &[Option<SnapshotId>],
    ) -> Result<Image, Ended> {
        let missing = || BuildError::new("the result of an earlier step is missing");
        match origin {
            Origin::Base(name) => Ok(inputs.bases.get(name).ok_or_else(missing)?.image.clone()),
            Origin::Step(number) => {
                let snapshot = results.get(*number).and_then(Option::as_ref).ok_or_else(missing)?;
                Ok(self.engine.template_of_any_snapshot(&template.account, snapshot)?)
            }
        }
    }

    fn advance(&self, template: &mut Template, result: StepResult) {
        template.content.steps.done += 1;
        template.content.steps.cached += u32::from(result == StepResult::Cached);
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
        step: &KeyedStep,
        inputs: &Inputs<'_>,
        results: &[Option<SnapshotId>],
    ) -> Result<SnapshotId, Ended> {
        let foreign = self.foreign_files(template, step, inputs, results).await?;
        let image = self.image(template, &step.step.above, inputs, results)?;
        let sandbox = StepSandbox::create(self.engine, template, image, self.log).await?;
        let work = async {
            match &foreign {
                Some(files) => sandbox.carry_out(&files.step, &files.context, files.target).await?,
                None => sandbox.carry_out(&step.step, inputs.context, step.target).await?,
            }
            let snapshot =
                sandbox.handle().take_internal_snapshot(step.key.clone(), SnapshotScope::Disk).await?;
            Ok(snapshot.id.clone())
        };
        let done = self.unless_stopped(work).await;
        sandbox.end().await;
        done
    }

    /// The files of a copy that does not copy from the build context.
    async fn foreign_files(
        &self,
        template: &Template,
        step: &KeyedStep,
        inputs: &Inputs<'_>,
        results: &[Option<SnapshotId>],
    ) -> Result<Option<ForeignFiles>, Ended> {
        let Work::Copy(copy) = &step.step.work else { return Ok(None) };
        let Some(from) = &copy.from else { return Ok(None) };
        let image = self.image(template, from, inputs, results)?;
        let sandbox = StepSandbox::create(self.engine, template, image, self.log).await?;
        let disk_mb = template.content.config.resources.disk_mb;
        let files = (&step.step, copy);
        let read = ForeignFiles::read(self.spool, &sandbox, files, disk_mb);
        let read = self.unless_stopped(read).await;
        sandbox.end().await;
        read.map(Some)
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
        start: &StartCommand,
        parent: &str,
        permit: &mut BuildPermit<'_>,
    ) -> Result<(), Ended> {
        let settings = template.content.settings.clone();
        let key = keys::of_start(parent, &settings.shell_command(&start.command), start.ready.as_deref());
        let cached = Some(&key).filter(|_| !template.content.no_cache);
        let cached = cached.and_then(|key| self.engine.find_internal_snapshot(&template.account, key));
        let steps = template.content.steps;
        self.log.step(&BuildStep {
            number: steps.total,
            total: steps.total,
            line: 0,
            text: format!("start command: {}", start.command),
            cached: cached.is_some(),
        });
        let result = if cached.is_some() { StepResult::Cached } else { StepResult::New };
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
                let image = self.engine.template_of_any_snapshot(&template.account, last)?;
                let sandbox = StepSandbox::create(self.engine, template, image, self.log).await?;
                let work = async {
                    start::start(sandbox.handle(), &settings, start, Some(self.log)).await?;
                    if !memory {
                        return Ok(None);
                    }
                    let snapshot =
                        sandbox.handle().take_internal_snapshot(key, SnapshotScope::Processes).await?;
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
        self.advance(template, result);
        Ok(())
    }

    fn size(&self, template: &Template) -> u64 {
        let bytes =
            template.snapshots.iter().filter_map(|id| self.engine.any_snapshot(&template.account, id).ok());
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
