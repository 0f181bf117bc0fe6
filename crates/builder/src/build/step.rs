//! Carries out one step in a sandbox of its own, and takes a snapshot of the result.

use std::collections::VecDeque;
use std::sync::Arc;

use api::{BuildEvent, SandboxId};
use dockerfile::{Copy, Directory, PlanStep, Run, Work};
use engine::{
    Channel, Engine, EngineError, FileErrorKind, FileKind, FileOp, ProcessEnd, ProcessEvent, ProcessRequest,
    SandboxHandle, Template as Image, UserFileOp,
};
use rules::LineSplitter;

use crate::context::Context;
use crate::copy::CopyTarget;
use crate::copy::archive;
use crate::error::{BuildError, Ended};
use crate::log::BuildLog;
use crate::template::Template;

const ROOT: &str = "root";
/// The reason in the event of the end of a step's sandbox.
const STEP_ENDED: &str = "build_step_ended";
/// The metadata of the sandboxes of builds: the template.
pub const METADATA: &str = "template";

/// The sandbox of a step. It is terminated by [`StepSandbox::end`].
pub struct StepSandbox<'a> {
    engine: &'a Engine,
    account: &'a str,
    id: SandboxId,
    log: &'a BuildLog,
}

impl<'a> StepSandbox<'a> {
    /// Creates a sandbox above an image or a snapshot.
    pub async fn create(
        engine: &'a Engine,
        template: &'a Template,
        image: Image,
        log: &'a BuildLog,
    ) -> Result<Self, EngineError> {
        let mut config = template.content.config.clone();
        config.metadata.insert(METADATA.to_owned(), template.id.to_string());
        let status = engine.create(&template.account, config, image, None).await?;
        Ok(Self { engine, account: &template.account, id: status.record.id.clone(), log })
    }

    /// The sandbox, for requests to the engine.
    pub fn handle(&self) -> SandboxHandle<'_> {
        self.engine.sandbox(self.account, &self.id)
    }

    /// Terminates the sandbox. A failure is logged; the lifetime of the sandbox ends it later.
    pub async fn end(self) {
        match self.handle().terminate(STEP_ENDED).await {
            Ok(_) | Err(EngineError::NotFound { .. } | EngineError::Stopping) => {}
            Err(error) => {
                tracing::warn!(sandbox = %self.id, %error, "cannot end the sandbox of a build step");
            }
        }
    }

    /// Carries out a step.
    pub async fn carry_out(
        &self,
        step: &PlanStep,
        context: &Arc<Context>,
        target: CopyTarget,
    ) -> Result<(), Ended> {
        for directory in &step.directories {
            self.make_directory(directory).await?;
        }
        match &step.work {
            Work::Nothing => Ok(()),
            Work::Run(run) => self.run(run).await,
            Work::Copy(copy) => self.copy(context, copy, target).await,
        }
    }

    async fn make_directory(&self, directory: &Directory) -> Result<(), Ended> {
        let path = directory.path.as_bytes().to_vec();
        let Some(owner) = &directory.owner else {
            let op = FileOp::MakeDir { path, mode: None, recursive: true };
            self.handle().file_op(true, &op).await?.info().await?;
            return Ok(());
        };
        let made = async {
            self.handle().user_file_op(true, owner, &UserFileOp::MakeDirs { path }).await?.details().await
        };
        match made.await {
            Err(EngineError::File(error)) if error.kind == FileErrorKind::Exists => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// Runs a command to its end.
    async fn run(&self, run: &Run) -> Result<(), Ended> {
        match self.process(run, None).await? {
            ProcessEnd::Exited(0) => Ok(()),
            ProcessEnd::Exited(code) => {
                Err(BuildError::new(format!("the command exited with code {code}")).into())
            }
            ProcessEnd::Signalled(signal) => {
                Err(BuildError::new(format!("the command was ended by {signal}")).into())
            }
            ProcessEnd::TimedOut => Err(BuildError::new("the command ran too long").into()),
            ProcessEnd::Lost(why) => {
                Err(BuildError::new(format!("the result of the command is unknown: {why}")).into())
            }
        }
    }

    /// Runs a process, writes its output into the log, and returns its end.
    pub async fn process(&self, run: &Run, timeout_ms: Option<u64>) -> Result<ProcessEnd, Ended> {
        let mut process = self.handle().start_process(request(run, None, timeout_ms)).await?;
        let mut output = OutputLog::new(self.log);
        loop {
            if let Some(end) = output.add(process.next().await?) {
                return Ok(end);
            }
        }
    }

    /// Sends files into the sandbox.
    async fn copy(&self, context: &Arc<Context>, copy: &Copy, target: CopyTarget) -> Result<(), Ended> {
        let (directory, renamed) = self.destination(copy, target).await?;
        let mut pieces = archive::send(Arc::clone(context), copy.clone(), renamed);
        let path = directory.into_bytes();
        let mut unpacking = match &copy.owner {
            Some(owner) => self.handle().user_file_op(true, owner, &UserFileOp::Unpack { path }).await?,
            None => self.handle().file_op(true, &FileOp::Unpack { path }).await?,
        };
        while let Some(piece) = pieces.recv().await {
            if !unpacking.send_upload(VecDeque::from([piece?])).await? {
                // Its response has the reason.
                break;
            }
        }
        unpacking.finish().await?;
        unpacking.tally().await?;
        Ok(())
    }

    /// The directory that the files go into, and the name of a single file if it gets another one.
    async fn destination(&self, copy: &Copy, target: CopyTarget) -> Result<(String, Option<String>), Ended> {
        let destination = copy.destination.trim_end_matches('/');
        let directory = || (format!("{destination}/"), None);
        if target == CopyTarget::Directory || copy.destination.ends_with('/') || destination.is_empty() {
            return Ok(directory());
        }
        let op = FileOp::Stat { path: destination.as_bytes().to_vec(), follow: true };
        let found = match self.handle().file_op(true, &op).await {
            Ok(stat) => stat.info().await,
            Err(error) => Err(error),
        };
        match found {
            Ok(info) if info.kind == FileKind::Directory => return Ok(directory()),
            Ok(_) | Err(EngineError::File(_)) => {}
            Err(error) => return Err(error.into()),
        }
        let (above, name) = destination.rsplit_once('/').unwrap_or(("", destination));
        Ok((format!("{above}/"), Some(name.to_owned())))
    }
}

/// Writes the output of a process into a log, line by line.
pub struct OutputLog<'a> {
    log: &'a BuildLog,
    stdout: LineSplitter,
    stderr: LineSplitter,
}

impl<'a> OutputLog<'a> {
    /// Output of one process: the next one gets another value, as this one has begun lines.
    pub fn new(log: &'a BuildLog) -> Self {
        Self { log, stdout: LineSplitter::new(), stderr: LineSplitter::new() }
    }

    /// Returns the end of the process, if that is the event.
    pub fn add(&mut self, event: ProcessEvent) -> Option<ProcessEnd> {
        match event {
            ProcessEvent::Output(channel, bytes) => {
                let (splitter, kind) = match channel {
                    Channel::Stdout => (&mut self.stdout, BuildEvent::Stdout),
                    Channel::Stderr => (&mut self.stderr, BuildEvent::Stderr),
                };
                let mut left = &bytes[..];
                while let Some(line) = splitter.next_piece(&mut left) {
                    self.log.output(kind, &line);
                }
                None
            }
            ProcessEvent::Dropped => {
                self.log.note("output was dropped: it came faster than it could be read");
                None
            }
            ProcessEvent::Ended(end) => {
                let rests = [(&mut self.stdout, BuildEvent::Stdout), (&mut self.stderr, BuildEvent::Stderr)];
                for (splitter, kind) in rests {
                    while let Some(line) = splitter.next_remainder() {
                        self.log.output(kind, &line);
                    }
                }
                Some(end)
            }
        }
    }
}

/// A process in a sandbox of a template.
pub fn request(run: &Run, tag: Option<&str>, timeout_ms: Option<u64>) -> ProcessRequest {
    ProcessRequest {
        argv: run.argv.clone(),
        env: (*run.env).clone(),
        cwd: Some(run.workdir.clone()),
        user: run.user.clone().unwrap_or_else(|| ROOT.to_owned()),
        tag: tag.map(str::to_owned),
        timeout_ms,
        auto_resume: true,
        ..ProcessRequest::default()
    }
}
