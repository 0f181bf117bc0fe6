//! One execution as everybody in this daemon sees it. Its keeper publishes how far it is; others read, and ask the keeper.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rules::TimeMs;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot, watch};

use super::log::{Log, LogState, Segment};
use super::record::{End, Record};
use crate::detached::status::{ExecutionState, ExecutionStatus};
use crate::error::EngineError;
use crate::link::DetachedInput;
use guest_proto::TerminalSize;

/// Orders that wait for a keeper.
const COMMAND_QUEUE: usize = 16;

/// How far an execution is, as written down.
#[derive(Clone)]
pub struct Progress {
    pub log: LogState,
    /// Where readers find it, and how far they may read.
    pub segments: Arc<[Segment]>,
    pub end: (u64, u64),
    pub bytes: u64,
}

impl Progress {
    pub fn of(log: &Log) -> Self {
        Self { log: log.state().clone(), segments: log.segments(), end: log.end(), bytes: log.bytes() }
    }
}

/// What the keeper alone does, because it is written down.
pub enum WriterCommand {
    CloseStdin(oneshot::Sender<Result<(), EngineError>>),
    Resize(TerminalSize, oneshot::Sender<Result<(), EngineError>>),
}

/// What its keeper alone has.
pub struct WriterInbox {
    pub commands: mpsc::Receiver<WriterCommand>,
    /// The first stdin_lock at its stdin, for the text that it began with: whoever writes comes after it.
    pub stdin_lock: Option<OwnedMutexGuard<()>>,
}

pub struct DetachedExecution {
    pub record: Record,
    pub dir: PathBuf,
    pub progress: watch::Sender<Progress>,
    /// The way in, while a link is there.
    pub input: watch::Sender<Option<DetachedInput>>,
    /// Who writes to its stdin has this, so that writes do not mix.
    pub writing: Arc<tokio::sync::Mutex<()>>,
    /// This daemon knows that it started, and state of it.
    pub has_started: AtomicBool,
    commands: mpsc::Sender<WriterCommand>,
}

impl DetachedExecution {
    pub fn new(record: Record, dir: PathBuf, log: &Log) -> (Arc<Self>, WriterInbox) {
        let (commands, to_keeper) = mpsc::channel(COMMAND_QUEUE);
        let writing = Arc::new(tokio::sync::Mutex::default());
        // Nobody knows of it yet, so it is free.
        let stdin_lock = Arc::clone(&writing).try_lock_owned().ok();
        let execution = Self {
            record,
            dir,
            progress: watch::Sender::new(Progress::of(log)),
            input: watch::Sender::new(None),
            writing,
            has_started: AtomicBool::new(false),
            commands,
        };
        (Arc::new(execution), WriterInbox { commands: to_keeper, stdin_lock })
    }

    pub fn is_running(&self) -> bool {
        self.progress.borrow().log.end.is_none()
    }

    pub fn status(&self) -> ExecutionStatus {
        status(&self.record, &self.progress.borrow())
    }

    /// Has the keeper do something, and waits until it is done.
    pub async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), EngineError>>) -> WriterCommand,
    ) -> Result<(), EngineError> {
        let (done, answer) = oneshot::channel();
        self.commands.send(command(done)).await.map_err(|_| self.ended_error())?;
        answer.await.map_err(|_| self.ended_error())?
    }

    /// Why it takes nothing any more.
    pub fn ended_error(&self) -> EngineError {
        let status = self.status();
        match status.state {
            ExecutionState::Running => EngineError::Stopping,
            state => EngineError::ExecutionEnded { id: status.id, state },
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
        terminal: record.terminal.map(|began| size.unwrap_or(began)),
        run_id: record.run_id.clone(),
        timeout_ms: record.timeout_ms,
        open_stdin: record.open_stdin && !is_stdin_closed && end.is_none(),
        state,
        exit_code: end.as_ref().and_then(|end| end.exit_code),
        signal: end.as_ref().and_then(|end| end.signal.clone()),
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
    use crate::detached::status::fresh_id;

    #[test]
    fn nobody_writes_before_its_keeper_had_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let record = Record {
            id: fresh_id(),
            op: 1,
            command: "cat".to_owned(),
            cwd: None,
            run_id: None,
            terminal: None,
            timeout_ms: None,
            ends_at_running_ms: None,
            open_stdin: true,
            has_stdin: true,
            started_at_ms: 1,
        };
        let log = Log::create(dir.path(), 1 << 20).unwrap();
        let (execution, inbox) = DetachedExecution::new(record, dir.path().to_owned(), &log);
        assert!(execution.writing.try_lock().is_err());
        drop(inbox.stdin_lock);
        assert!(execution.writing.try_lock().is_ok());
    }
}
