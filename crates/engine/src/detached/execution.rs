//! The state of one execution in this daemon. Its log writer publishes the progress; others read it and send requests to the log
//! writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use base::millis;
use rules::{OutputReaders, TimeMs};
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::log::{Log, LogState, Segment, needed_from};
use super::record::{End, Record};
use crate::detached::status::{ExecutionState, ExecutionStatus};
use crate::error::{DaemonError, EngineError, ExecutionEnd, ExecutionError};
use crate::link::DetachedInput;
use guest_proto::TerminalSize;

/// The maximum number of requests that wait for a log writer.
const COMMAND_QUEUE: usize = 16;
/// Longer than any execution.
const FAR_FUTURE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The progress of an execution, as it is in the log.
#[derive(Clone)]
pub struct Progress {
    pub log: LogState,
    /// The segments of the log, and the position up to which readers may read.
    pub segments: Arc<[Segment]>,
    pub end: (u64, u64),
    pub bytes: u64,
    /// The newest segment that the next write has to drop.
    next_dropped: Option<u64>,
    /// The size limit of the log.
    max_bytes: u64,
}

impl Progress {
    pub fn of(log: &Log) -> Self {
        Self {
            log: log.state().clone(),
            segments: log.segments(),
            end: log.end(),
            bytes: log.bytes(),
            next_dropped: log.next_dropped(),
            max_bytes: log.max_bytes(),
        }
    }
}

/// A request to the log writer, which records it in the log.
pub enum WriterCommand {
    CloseStdin(oneshot::Sender<Result<(), EngineError>>),
    Resize(TerminalSize, oneshot::Sender<Result<(), EngineError>>),
}

/// The receiving end of a log writer.
pub struct WriterInbox {
    pub commands: mpsc::Receiver<WriterCommand>,
    /// The stdin lock, held until the initial stdin is sent. Other input comes after it.
    pub stdin_lock: Option<OwnedMutexGuard<()>>,
}

pub struct DetachedExecution {
    pub record: Record,
    pub dir: PathBuf,
    pub progress: watch::Sender<Progress>,
    /// The input of the command, while there is a link.
    pub input: watch::Sender<Option<DetachedInput>>,
    /// Who reads the output, and how far. Times are those of [`now_ms`](Self::now_ms).
    pub readers: watch::Sender<OutputReaders>,
    /// Whether a request has killed the command. What is left of its output does not wait for readers.
    pub is_killed: watch::Sender<bool>,
    /// When this daemon began or found the execution.
    began: Instant,
    /// Serializes writes to stdin.
    pub stdin_lock: Arc<tokio::sync::Mutex<()>>,
    /// Whether this daemon has recorded the start event.
    pub has_started: AtomicBool,
    /// The pid that the agent reported; 0 if it is unknown. The log has it a moment later.
    pub pid: AtomicU32,
    commands: mpsc::Sender<WriterCommand>,
}

impl DetachedExecution {
    pub fn new(record: Record, dir: PathBuf, log: &Log) -> (Arc<Self>, WriterInbox) {
        let (commands, inbox) = mpsc::channel(COMMAND_QUEUE);
        let stdin_lock = Arc::new(tokio::sync::Mutex::default());
        // The execution is not shared yet, so the lock is free.
        let locked = Arc::clone(&stdin_lock).try_lock_owned().ok();
        let progress = Progress::of(log);
        // The readers of an earlier daemon come back, and where they were is not known.
        let oldest = progress.segments.first().map_or(0, |oldest| oldest.number);
        let readers = match log.is_unread() {
            true => OutputReaders::of_nobody(oldest, record.reader_timeout_ms),
            false => OutputReaders::new(oldest, record.reader_timeout_ms, 0),
        };
        let execution = Self {
            record,
            dir,
            progress: watch::Sender::new(progress),
            input: watch::Sender::new(None),
            readers: watch::Sender::new(readers),
            is_killed: watch::Sender::new(false),
            began: Instant::now(),
            stdin_lock,
            has_started: AtomicBool::new(false),
            pid: AtomicU32::new(log.state().pid.unwrap_or(0)),
            commands,
        };
        (Arc::new(execution), WriterInbox { commands: inbox, stdin_lock: locked })
    }

    pub fn is_running(&self) -> bool {
        self.progress.borrow().log.end.is_none()
    }

    /// The time for readers: milliseconds since this daemon began or found the execution.
    pub fn now_ms(&self) -> u64 {
        millis(self.began.elapsed())
    }

    /// The instant of a time for readers.
    pub fn instant(&self, ms: u64) -> Instant {
        let after = Duration::from_millis(ms);
        // Beyond the range of instants is never.
        self.began.checked_add(after).unwrap_or_else(|| self.began + FAR_FUTURE)
    }

    /// Whether the next write to the log drops no output that a reader in this segment needs.
    pub fn has_room(&self, segment: u64) -> bool {
        let progress = self.progress.borrow();
        let needed_from = needed_from(&progress.segments, segment, progress.max_bytes);
        progress.next_dropped.is_none_or(|dropped| dropped < needed_from)
    }

    /// The segments that the next write must keep: from this one on.
    pub fn kept_from(&self) -> u64 {
        let needed = self.readers.borrow().needed(self.now_ms());
        let progress = self.progress.borrow();
        needed.from.map_or(u64::MAX, |segment| needed_from(&progress.segments, segment, progress.max_bytes))
    }

    /// Whether a client is reading the output, or about to come back for the rest.
    pub fn is_awaited(&self) -> bool {
        self.readers.borrow().is_awaited(self.now_ms())
    }

    pub fn status(&self) -> ExecutionStatus {
        status(&self.record, &self.progress.borrow())
    }

    /// Sends a request to the log writer and waits until it is carried out.
    pub async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), EngineError>>) -> WriterCommand,
    ) -> Result<(), EngineError> {
        let (done, answer) = oneshot::channel();
        self.commands.send(command(done)).await.map_err(|_| self.ended_error())?;
        answer.await.map_err(|_| self.ended_error())?
    }

    /// The error for requests after the end of the execution.
    pub fn ended_error(&self) -> EngineError {
        let status = self.status();
        let ended = |end| ExecutionError::Ended { id: status.id, end }.into();
        match status.state {
            ExecutionState::Running => EngineError::Daemon(DaemonError::Stopping),
            ExecutionState::Exited => ended(ExecutionEnd::Exited),
            ExecutionState::Lost => ended(ExecutionEnd::Lost),
        }
    }
}

fn status(record: &Record, progress: &Progress) -> ExecutionStatus {
    let LogState { printed, is_stdin_closed, size, end, .. } = &progress.log;
    let state = match end {
        None => ExecutionState::Running,
        Some(End { is_lost: true, .. }) => ExecutionState::Lost,
        Some(_) => ExecutionState::Exited,
    };
    ExecutionStatus {
        id: record.id.clone(),
        command: record.command.clone(),
        cwd: record.cwd.clone(),
        user: record.user.clone(),
        terminal: record.terminal.map(|began| size.unwrap_or(began)),
        run_id: record.run_id.clone(),
        timeout_ms: record.timeout_ms,
        open_stdin: record.open_stdin && !is_stdin_closed && end.is_none(),
        state,
        exit_code: end.as_ref().and_then(|end| end.exit_code),
        signal: end.as_ref().and_then(|end| end.signal.clone()),
        reason: end.as_ref().and_then(|end| end.reason),
        message: end.as_ref().and_then(|end| end.message.clone()),
        started_at: TimeMs(record.started_at_ms),
        ended_at: end.as_ref().map(|end| TimeMs(end.at_ms)),
        duration_ms: end.as_ref().filter(|end| !end.is_lost).map(|end| end.duration_ms),
        output: *printed,
        oldest: progress.segments.first().map_or(*printed, |oldest| oldest.start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ids::new_execution_id;

    #[test]
    fn stdin_is_locked_until_the_log_writer_releases_it() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record {
            id: new_execution_id(),
            op: 1,
            command: "cat".to_owned(),
            cwd: None,
            run_id: None,
            user: None,
            process: None,
            terminal: None,
            timeout_ms: None,
            ends_at_running_ms: None,
            open_stdin: true,
            has_stdin: true,
            started_at_ms: 1,
            reader_timeout_ms: 1,
        };
        let log = Log::create(dir.path(), 1 << 20).unwrap();
        let (execution, inbox) = DetachedExecution::new(record, dir.path().to_owned(), &log);
        assert!(execution.stdin_lock.try_lock().is_err());
        drop(inbox.stdin_lock);
        assert!(execution.stdin_lock.try_lock().is_ok());
    }
}
