//! How others reach a sandbox's actor: a mailbox for requests, a way to give back what they were let in for, and its status.

use std::sync::Arc;

use api::RunId;
use rules::{AutoResume, ExposeOrder, NetworkChange, Operation, TimeMs};
use store::{ExposedPort, SandboxRecord};
use tokio::sync::{mpsc, oneshot, watch};

use crate::counters::Counted;
use crate::error::EngineError;
use crate::link::Agent;
use crate::status::{PauseResult, ResumeResult, Status, TerminateResult};

/// Requests that may wait for one actor; further senders wait for room.
pub const MAILBOX: usize = 64;

pub type Reply<T> = oneshot::Sender<Result<T, EngineError>>;

/// What an actor can be asked.
pub enum Request {
    /// Nothing; a request all the same, which keeps the sandbox awake.
    Touch,
    /// To work inside: run a command, touch files, use a port.
    Enter {
        operation: Operation,
        reply: Reply<Entry>,
    },
    /// To start a command that outlives its request, on a terminal or not.
    Detach {
        auto_resume: AutoResume,
        is_terminal: bool,
        reply: Reply<Entry>,
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
pub enum Work {
    Command,
    /// A place as a command's; the sandbox is not kept awake, which is for those who are at it.
    Terminal,
    Traffic,
}

/// Leave to work in a running sandbox.
pub struct Entry {
    pub permit: Permit,
    pub agent: Agent,
    pub record: Arc<SandboxRecord>,
    pub status: watch::Receiver<Status>,
}

/// Holds the sandbox awake, but for a terminal, and for commands one of its places. Gives both back when dropped.
pub struct Permit {
    work: Work,
    /// One message a permit, of which the rules allow few.
    leaving: mpsc::UnboundedSender<Work>,
    _counted: Option<Counted>,
}

impl Permit {
    pub fn new(work: Work, leaving: mpsc::UnboundedSender<Work>, counted: Option<Counted>) -> Self {
        Self { work, leaving, _counted: counted }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // The actor of a sandbox that is over counts no more.
        let _ = self.leaving.send(self.work);
    }
}

/// A sandbox as the registry holds it.
#[derive(Clone)]
pub struct Handle {
    pub requests: mpsc::Sender<Request>,
    pub status: watch::Receiver<Status>,
}

impl Handle {
    /// Sends a request and waits for its answer. The request goes on when the caller stops waiting.
    pub async fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, EngineError> {
        let (reply, answer) = oneshot::channel();
        let gone = || EngineError::NotFound { terminated: None };
        self.requests.send(request(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}
