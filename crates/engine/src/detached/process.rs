//! Processes: detached executions that are started by their arguments and addressed by pid or tag.
//!
//! A process has everything that a detached execution has: a record, a log, an execution slot, events. It outlives its client, and
//! the daemon. Its output is passed on as raw bytes. `SandboxHandle` has the operations (`sandbox/processes`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use api::{EndReason, RunId};
use bytes::Bytes;
use guest_proto::{Channel, TerminalSize};

use crate::detached::status::{DetachedRequest, ProcessArgs};
use crate::detached::{DetachedExecution, End, ExecutionId, OutputEvent, OutputReader};
use crate::error::{EngineError, ProcessError};

/// Most bytes in one argument, and in one `NAME=value`.
pub const MAX_ARG_BYTES: usize = guest_proto::MAX_STRING;
/// Most bytes in arguments and environment together.
pub const MAX_PROCESS_BYTES: usize = 512 * 1024;
/// Most bytes in one [`ProcessEvent::Output`].
const MAX_PIECE: usize = 32 * 1024;
/// Most characters of the arguments that events and lists of executions show as the command.
const SHOWN_COMMAND: usize = 1024;
/// How long an ended process can be found.
pub(crate) const ENDED_FOR_MS: u64 = 30_000;

/// A process to start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessRequest {
    /// Program and arguments. A program without a slash is looked up in `PATH`.
    pub argv: Vec<String>,
    /// Overrides the variables of the sandbox and its image. `HOME`, `USER` and `LOGNAME` are the user's.
    pub env: BTreeMap<String, String>,
    /// Absolute, or relative to the user's home. `None` for the home, or `/` if the user cannot enter it.
    pub cwd: Option<String>,
    /// A name in the sandbox's `/etc/passwd`.
    pub user: String,
    /// Whether it has an input, which stays open until it is closed. Without one it reads `/dev/null`.
    pub stdin: bool,
    /// Runs it on a terminal, which is its input and output.
    pub terminal: Option<TerminalSize>,
    pub tag: Option<String>,
    /// Running time after which it is killed. `None` for no limit.
    pub timeout_ms: Option<u64>,
    /// Whether a paused sandbox is resumed for it.
    pub auto_resume: bool,
    /// The run of its events.
    pub run_id: Option<RunId>,
}

/// Which process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessSelector<'a> {
    /// The pid that the sandbox sees. If it was reused, the newest process.
    Pid(u32),
    /// The newest process with this tag.
    Tag(&'a str),
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStatus {
    /// As the sandbox sees it.
    pub pid: u32,
    pub execution: ExecutionId,
    pub argv: Vec<String>,
    /// As requested.
    pub env: BTreeMap<String, String>,
    /// As requested.
    pub cwd: Option<String>,
    pub user: String,
    pub tag: Option<String>,
    pub terminal: Option<TerminalSize>,
    /// Whether it was started with an input.
    pub stdin: bool,
    pub end: Option<ProcessEnd>,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEnd {
    Exited(i32),
    /// The name of the signal, such as `SIGKILL`.
    Signalled(String),
    /// The kernel killed it for lack of memory: it, or a process whose end bash reports as `exit_code`. `message` names the limit.
    OutOfMemory {
        exit_code: Option<i32>,
        message: String,
    },
    /// It was killed at its timeout.
    TimedOut,
    /// The outcome is unknown, for this reason.
    Lost(String),
}

/// An event of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    /// At most 32 KiB; a character may be split. On a terminal all output is [`Channel::Stdout`].
    Output(Channel, Bytes),
    /// The reader was too slow, and output was dropped.
    Dropped,
    /// The last event, after all output.
    Ended(ProcessEnd),
}

impl ProcessRequest {
    /// Checks the limits, and makes a request for a detached execution.
    pub(crate) fn into_detached(self) -> Result<DetachedRequest, ProcessError> {
        self.check()?;
        let command: String = self.argv.join(" ").chars().take(SHOWN_COMMAND).collect();
        Ok(DetachedRequest {
            command,
            cwd: self.cwd,
            env: self.env,
            timeout_ms: self.timeout_ms,
            reader_timeout_ms: None,
            stdin: None,
            open_stdin: self.stdin,
            terminal: self.terminal,
            auto_resume: self.auto_resume,
            run_id: self.run_id,
            user: Some(self.user),
            process: Some(ProcessArgs { argv: self.argv, tag: self.tag }),
        })
    }

    fn check(&self) -> Result<(), ProcessError> {
        let variables = self.env.iter().map(|(name, value)| name.len() + value.len() + 1);
        let sizes: Vec<usize> = self.argv.iter().map(String::len).chain(variables).collect();
        let is_too_large =
            sizes.iter().any(|size| *size > MAX_ARG_BYTES) || sizes.iter().sum::<usize>() > MAX_PROCESS_BYTES;
        let variables = self.env.iter().flat_map(|(name, value)| [name, value]);
        let mut texts = self.argv.iter().chain(variables).chain(&self.cwd).chain([&self.user]);
        let message = if self.argv.first().is_none_or(String::is_empty) {
            "the process has no program"
        } else if self.argv.len() > guest_proto::MAX_ARGS || self.env.len() > guest_proto::MAX_ENV {
            "the process has more than 4096 arguments or variables"
        } else if is_too_large {
            "the process has an argument or variable of 128 KiB or more, or more than 512 KiB of them together"
        } else if self.env.keys().any(|name| name.is_empty() || name.contains('=')) {
            "the name of a variable is empty or has a '='"
        } else if self.user.is_empty() || self.user.len() > guest_proto::MAX_USER {
            "the name of the user is empty or longer than 256 bytes"
        } else if self
            .cwd
            .as_ref()
            .is_some_and(|cwd| cwd.len() > guest_proto::MAX_PATH - guest_proto::MAX_NAME)
        {
            "the working directory has too many bytes"
        } else if texts.any(|text| text.contains('\0')) {
            "the process has a NUL byte in a text"
        } else {
            return Ok(());
        };
        Err(ProcessError::Invalid(message))
    }
}

impl ProcessSelector<'_> {
    pub(crate) fn fits(self, execution: &DetachedExecution, now_ms: u64) -> bool {
        let Some(process) = &execution.record.process else { return false };
        let ended_at = execution.progress.borrow().log.end.as_ref().map(|end| end.at_ms);
        if ended_at.is_some_and(|at| now_ms.saturating_sub(at) > ENDED_FOR_MS) {
            return false;
        }
        match self {
            Self::Pid(pid) => pid > 0 && execution.pid.load(Ordering::Relaxed) == pid,
            Self::Tag(tag) => process.tag.as_deref() == Some(tag),
        }
    }
}

impl std::fmt::Display for ProcessSelector<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "the pid {pid}"),
            Self::Tag(tag) => write!(f, "the tag {}", rules::quoted(tag)),
        }
    }
}

/// A running or just ended process with a reader of its output. Dropping it has no effect on the process.
pub struct Process {
    execution: Arc<DetachedExecution>,
    output: OutputReader,
    /// What is left of a piece of the log that is larger than an event.
    rest: Option<(Channel, Bytes)>,
}

impl Process {
    pub(crate) fn new(execution: Arc<DetachedExecution>, output: OutputReader) -> Self {
        Self { execution, output, rest: None }
    }

    pub fn status(&self) -> ProcessStatus {
        status(&self.execution)
    }

    /// Waits for the next event. [`ProcessEvent::Ended`] is the last one. Cancel safe.
    pub async fn next(&mut self) -> Result<ProcessEvent, EngineError> {
        loop {
            if let Some((channel, mut bytes)) = self.rest.take() {
                let piece = bytes.split_to(bytes.len().min(MAX_PIECE));
                self.rest = Some((channel, bytes)).filter(|(_, bytes)| !bytes.is_empty());
                return Ok(ProcessEvent::Output(channel, piece));
            }
            match self.output.next().await? {
                OutputEvent::Output { bytes, .. } if bytes.is_empty() => {}
                OutputEvent::Output { channel, bytes, .. } => self.rest = Some((channel, bytes)),
                OutputEvent::Dropped { .. } => return Ok(ProcessEvent::Dropped),
                OutputEvent::Ended(_) => {
                    let end = self.execution.progress.borrow().log.end.as_ref().map(end_of);
                    let lost = || ProcessEnd::Lost("the end of the process was not recorded".to_owned());
                    return Ok(ProcessEvent::Ended(end.unwrap_or_else(lost)));
                }
            }
        }
    }
}

pub(crate) fn status(execution: &DetachedExecution) -> ProcessStatus {
    let record = &execution.record;
    let process = record.process.clone();
    let (argv, env, tag) =
        process.map(|process| (process.argv, process.env, process.tag)).unwrap_or_default();
    let status = execution.status();
    ProcessStatus {
        pid: execution.pid.load(Ordering::Relaxed),
        execution: record.id.clone(),
        argv,
        env,
        cwd: record.cwd.clone(),
        user: record.user.clone().unwrap_or_else(|| "root".to_owned()),
        tag,
        terminal: status.terminal,
        stdin: record.has_stdin,
        end: execution.progress.borrow().log.end.as_ref().map(end_of),
    }
}

fn end_of(end: &End) -> ProcessEnd {
    match end {
        End { is_timed_out: true, .. } => ProcessEnd::TimedOut,
        End { reason: Some(EndReason::Oom), exit_code, message, .. } => {
            ProcessEnd::OutOfMemory { exit_code: *exit_code, message: message.clone().unwrap_or_default() }
        }
        End { exit_code: Some(code), .. } => ProcessEnd::Exited(*code),
        End { signal: Some(signal), .. } => ProcessEnd::Signalled(signal.clone()),
        End { message, .. } => ProcessEnd::Lost(message.clone().unwrap_or_default()),
    }
}
