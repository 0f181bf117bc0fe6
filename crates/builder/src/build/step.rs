//! Carries out one step in a sandbox of its own, and takes a snapshot of the result.

use std::collections::VecDeque;
use std::sync::Arc;

use api::SandboxId;
use dockerfile::{Copy, Directory, PlanStep, Run, Work};
use engine::{
    DaemonError, Engine, EngineError, FileErrorKind, FileKind, FileOp, ProcessEnd, ProcessRequest,
    SandboxError, SandboxHandle, Template as Image, UserFileOp,
};
use rules::AutoResume;

use super::output_log::OutputLog;
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
            Ok(_)
            | Err(
                EngineError::Sandbox(SandboxError::NotFound { .. })
                | EngineError::Daemon(DaemonError::Stopping),
            ) => {}
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
            self.handle().file_op(AutoResume::Allowed, &op).await?.info().await?;
            return Ok(());
        };
        let made = async {
            self.handle()
                .user_file_op(AutoResume::Allowed, owner, &UserFileOp::MakeDirs { path })
                .await?
                .details()
                .await
        };
        match made.await {
            Err(EngineError::File(error)) if error.kind == FileErrorKind::Exists => Ok(()),
            made => Ok(made.map(drop)?),
        }
    }

    /// Runs a command to its end.
    async fn run(&self, run: &Run) -> Result<(), Ended> {
        let (end, output) = self.logged_process(run, None).await?;
        Ok(step_result(end, output.hint())?)
    }

    /// Runs a process, writes its output into the log, and returns its end.
    pub async fn process(&self, run: &Run, timeout_ms: Option<u64>) -> Result<ProcessEnd, Ended> {
        Ok(self.logged_process(run, timeout_ms).await?.0)
    }

    async fn logged_process(
        &self,
        run: &Run,
        timeout_ms: Option<u64>,
    ) -> Result<(ProcessEnd, OutputLog<'a>), Ended> {
        let mut process = self.handle().start_process(request(run, None, timeout_ms)).await?;
        let mut output = OutputLog::new(self.log);
        loop {
            if let Some(end) = output.add(process.next().await?) {
                return Ok((end, output));
            }
        }
    }

    /// Sends files into the sandbox.
    async fn copy(&self, context: &Arc<Context>, copy: &Copy, target: CopyTarget) -> Result<(), Ended> {
        let (directory, renamed) = self.destination(copy, target).await?;
        let mut pieces = archive::send(Arc::clone(context), copy.clone(), renamed);
        let path = directory.into_bytes();
        let mut unpacking = match &copy.owner {
            Some(owner) => {
                self.handle().user_file_op(AutoResume::Allowed, owner, &UserFileOp::Unpack { path }).await?
            }
            None => self.handle().file_op(AutoResume::Allowed, &FileOp::Unpack { path }).await?,
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
        let path = copy.destination.trim_end_matches('/');
        if is_directory_by_name(&copy.destination, target) || self.is_directory(path).await? {
            return Ok((format!("{path}/"), None));
        }
        let (above, name) = directory_and_name(path);
        Ok((above, Some(name)))
    }

    async fn is_directory(&self, path: &str) -> Result<bool, EngineError> {
        let op = FileOp::Stat { path: path.as_bytes().to_vec(), follow: true };
        let found = async { self.handle().file_op(AutoResume::Allowed, &op).await?.info().await };
        match found.await {
            Ok(info) => Ok(info.kind == FileKind::Directory),
            Err(EngineError::File(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether files go into a directory, whatever the sandbox has there.
fn is_directory_by_name(destination: &str, target: CopyTarget) -> bool {
    target == CopyTarget::Directory || destination.is_empty() || destination.ends_with('/')
}

/// Where a single file goes that gets the name of its destination.
fn directory_and_name(path: &str) -> (String, String) {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    (format!("{above}/"), name.to_owned())
}

/// What the end of a command is to its step.
fn step_result(end: ProcessEnd, hint: &str) -> Result<(), BuildError> {
    Err(BuildError::new(match end {
        ProcessEnd::Exited(0) => return Ok(()),
        ProcessEnd::Exited(code) => format!("the command exited with code {code}{hint}"),
        ProcessEnd::Signalled(signal) => format!("the command was ended by {signal}"),
        ProcessEnd::OutOfMemory { message, .. } => format!("the command was killed: {message}"),
        ProcessEnd::TimedOut => "the command ran too long".to_owned(),
        ProcessEnd::Lost(why) => format!("the result of the command is unknown: {why}"),
    }))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_the_exit_code_zero_completes_a_step() {
        let message = |end| step_result(end, "").map_err(|error| error.message);
        assert_eq!(message(ProcessEnd::Exited(0)), Ok(()));
        let failures = [
            (ProcessEnd::Exited(7), "the command exited with code 7"),
            (ProcessEnd::Exited(-1), "the command exited with code -1"),
            (ProcessEnd::Signalled("SIGKILL".to_owned()), "the command was ended by SIGKILL"),
            (
                ProcessEnd::OutOfMemory { exit_code: Some(137), message: "no memory".to_owned() },
                "the command was killed: no memory",
            ),
            (ProcessEnd::TimedOut, "the command ran too long"),
            (ProcessEnd::Lost("why".to_owned()), "the result of the command is unknown: why"),
        ];
        for (end, expected) in failures {
            assert_eq!(message(end), Err(expected.to_owned()));
        }
    }

    #[test]
    fn some_destinations_are_directories_whatever_is_there() {
        let cases = [
            ("/app/", CopyTarget::File, true),
            ("/", CopyTarget::File, true),
            ("", CopyTarget::File, true),
            ("/app", CopyTarget::Directory, true),
            ("/app", CopyTarget::File, false),
            ("/app/file.txt", CopyTarget::File, false),
        ];
        for (destination, target, expected) in cases {
            assert_eq!(is_directory_by_name(destination, target), expected, "{destination} {target:?}");
        }
    }

    #[test]
    fn a_single_file_gets_the_last_part_of_its_destination_as_its_name() {
        let cases =
            [("/app/bin/x", "/app/bin/", "x"), ("/x", "/", "x"), ("x", "/", "x"), ("/a b/.x", "/a b/", ".x")];
        for (path, directory, name) in cases {
            assert_eq!(directory_and_name(path), (directory.to_owned(), name.to_owned()), "{path}");
        }
    }

    #[test]
    fn a_process_runs_as_root_unless_the_image_names_a_user() {
        let run = |user: Option<&str>| Run {
            argv: vec!["sh".to_owned()],
            env: Arc::new(BTreeMap::from([("A".to_owned(), "1".to_owned())])),
            workdir: "/app".to_owned(),
            user: user.map(str::to_owned),
        };
        let root = request(&run(None), Some("start"), Some(5));
        assert_eq!(
            (root.user.as_str(), root.tag.as_deref(), root.timeout_ms),
            (ROOT, Some("start"), Some(5))
        );
        assert_eq!((root.cwd.as_deref(), root.env["A"].as_str()), (Some("/app"), "1"));
        let other = request(&run(Some("1000:1000")), None, None);
        assert_eq!((other.user.as_str(), other.tag, other.timeout_ms), ("1000:1000", None, None));
    }
}
