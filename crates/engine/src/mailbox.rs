//! How others reach a sandbox's actor: a mailbox for requests, a way to give back what they were let in for, and its status.

use std::sync::Arc;

use api::RunId;
use rules::{AutoResume, ExposeOrder, NetworkChange, Operation, TimeMs};
use store::{ExposedPort, SandboxRecord};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::GaugeGuard;
use crate::error::EngineError;
use crate::link::Agent;
use crate::status::{PauseResult, ResumeResult, Status, TerminateResult};

/// Requests that may wait for one actor; further senders wait for room.
pub const MAILBOX: usize = 64;

pub type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// What an actor can be asked.
pub enum ActorRequest {
    /// Nothing; a request all the same, which keeps the sandbox awake.
    Touch,
    /// To work inside: run a command, touch files, use a port.
    Enter {
        operation: Operation,
        reply: Reply<Admission>,
    },
    /// To start a command that outlives its request, on a terminal or not.
    Detach {
        auto_resume: AutoResume,
        is_terminal: bool,
        reply: Reply<Admission>,
    },
    Pause {
        reply: Reply<PauseResult>,
    },
    Resume {
        reply: Reply<ResumeResult>,
    },
    /// Another network policy.
    Network {
        change: NetworkChange,
        reply: Reply<Status>,
    },
    /// To let a port be reached from outside.
    Expose {
        order: ExposeOrder,
        run: Option<RunId>,
        reply: Reply<ExposedPort>,
    },
    ClosePort {
        port: u16,
        run: Option<RunId>,
        reply: Reply<TimeMs>,
    },
    Terminate {
        reason: String,
        reply: Reply<TerminateResult>,
    },
}

/// What somebody was let in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    Command,
    /// A place as a command's; the sandbox is not kept awake, which is for those who are at it.
    Terminal,
    Traffic,
}

/// Leave to work in a running sandbox.
pub struct Admission {
    pub permit: Permit,
    pub agent: Agent,
    pub record: Arc<SandboxRecord>,
    pub status: watch::Receiver<Status>,
}

/// Holds the sandbox awake, but for a terminal, and for commands one of its places. Gives both back when dropped.
pub struct Permit {
    work: WorkKind,
    /// One message a permit, of which the rules allow few.
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
        // The actor of a sandbox that is over counts no more.
        let _ = self.released.send(self.work);
    }
}

/// A sandbox as the registry holds it.
#[derive(Clone)]
pub struct ActorHandle {
    pub requests: mpsc::Sender<ActorRequest>,
    pub status: watch::Receiver<Status>,
}

impl ActorHandle {
    /// Sends a request and waits for its answer. The request goes on when the caller stops waiting.
    pub async fn request<T>(&self, request: impl FnOnce(Reply<T>) -> ActorRequest) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let gone = || EngineError::NotFound { terminated: None };
        self.requests.send(request(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
