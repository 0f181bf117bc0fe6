//! The interface of a sandbox's actor: requests through a mailbox, permits for work inside, and the published status.

use std::sync::Arc;
use std::time::Duration;

use api::{RunId, SnapshotId};
use driver::{DiskCopy, SnapshotScope};
use rules::{AutoResume, ExposeRequest, NetworkChange, Operation, TimeMs};
use store::{ExposedPort, SandboxRecord, SnapshotRecord};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::GaugeGuard;
use crate::error::{EngineError, SandboxError};
use crate::link::Agent;
use crate::record::status::{PauseResult, ResumeResult, Status, TerminateResult};
use crate::template::hold::SnapshotHold;

/// The capacity of a mailbox. Senders wait while it is full.
pub const MAILBOX: usize = 64;

pub type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// A request to an actor.
pub enum ActorRequest {
    /// Counts as activity and has no other effect.
    Touch,
    /// Asks for admission to run a command, operate on files, or use a port.
    Enter {
        operation: Operation,
        reply: Reply<Admission>,
    },
    /// Asks for admission to start a detached execution.
    Detach {
        auto_resume: AutoResume,
        is_terminal: bool,
        reply: Reply<Admission>,
    },
    Pause {
        /// In the event of the pause.
        reason: &'static str,
        processes: Processes,
        reply: Reply<PauseResult>,
    },
    /// Frees memory of a paused sandbox if that is possible, and returns whether it did.
    FreeMemory {
        reply: Reply<bool>,
    },
    Resume {
        processes: Processes,
        reply: Reply<ResumeResult>,
    },
    Network {
        change: NetworkChange,
        reply: Reply<Status>,
    },
    Timeout {
        change: TimeoutChange,
        reply: Reply<Status>,
    },
    Expose {
        request: ExposeRequest,
        run: Option<RunId>,
        reply: Reply<ExposedPort>,
    },
    ClosePort {
        port: u16,
        run: Option<RunId>,
        reply: Reply<TimeMs>,
    },
    /// Completes a copy of the disk.
    Capture {
        copy: Box<dyn DiskCopy>,
        snapshot: SnapshotId,
        scope: SnapshotScope,
        reply: Reply<CapturedDisk>,
    },
    /// Replaces the disk by that of a snapshot of the sandbox, and starts it.
    Rollback {
        snapshot: Arc<SnapshotRecord>,
        /// Keeps its disks until its layers are those of the sandbox.
        hold: SnapshotHold,
        reply: Reply<Status>,
    },
    Terminate {
        reason: String,
        reply: Reply<TerminateResult>,
    },
}

/// A captured copy of a disk.
pub struct CapturedDisk {
    pub copy: Box<dyn DiskCopy>,
    /// The record of the sandbox at that moment.
    pub record: Arc<SandboxRecord>,
    /// How long its processes were frozen.
    pub frozen: Duration,
}

/// What becomes of a sandbox's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    /// They are frozen by a pause, and continue at a resume.
    Kept,
    /// They are stored on the disk by a pause.
    Stored,
    /// They end. A resume starts the sandbox again on its disk.
    Ended,
}

/// A change of a sandbox's timeout, in ms of running time from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutChange {
    /// The timeout ends then, earlier or later than before.
    Set(u64),
    /// The timeout ends then if that is later than before.
    Extend(u64),
}

impl TimeoutChange {
    pub fn timeout_ms(self) -> u64 {
        match self {
            Self::Set(ms) | Self::Extend(ms) => ms,
        }
    }
}

/// The kind of admitted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// Holds an execution slot of attached commands and keeps the sandbox active.
    Command,
    /// Holds an execution slot of detached commands and keeps the sandbox active.
    Detached,
    /// Holds an execution slot of detached commands. Only attached clients keep the sandbox active.
    Terminal,
    /// Keeps the sandbox active and holds no execution slot.
    Traffic,
}

impl WorkKind {
    pub fn of_detached(is_terminal: bool) -> Self {
        if is_terminal { Self::Terminal } else { Self::Detached }
    }

    pub fn needs_slot(self) -> bool {
        self != Self::Traffic
    }
}

/// The admission to work inside a running sandbox.
pub struct Admission {
    pub(crate) permit: Permit,
    pub(crate) agent: Agent,
    pub(crate) record: Arc<SandboxRecord>,
    pub(crate) status: watch::Receiver<Status>,
}

/// The permit for admitted work. Returns to the actor when it is dropped.
pub struct Permit {
    work: WorkKind,
    /// Unbounded, because there is one message per permit and the rules limit permits.
    released: mpsc::UnboundedSender<WorkKind>,
    _counted: Option<GaugeGuard>,
}

impl Permit {
    pub fn new(
        work: WorkKind,
        released: mpsc::UnboundedSender<WorkKind>,
        counted: Option<GaugeGuard>,
    ) -> Self {
        Self { work, released, _counted: counted }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // Fails if the actor has ended, which ends the counting as well.
        let _ = self.released.send(self.work);
    }
}

/// A handle to a sandbox's actor.
#[derive(Clone)]
pub struct ActorHandle {
    pub requests: mpsc::Sender<ActorRequest>,
    pub status: watch::Receiver<Status>,
}

impl ActorHandle {
    /// Sends a request and waits for the reply. The actor carries out the request even if the caller stops waiting.
    pub async fn request<T>(&self, request: impl FnOnce(Reply<T>) -> ActorRequest) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let ended = || EngineError::Sandbox(SandboxError::NotFound { terminated: None });
        self.requests.send(request(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }
}
