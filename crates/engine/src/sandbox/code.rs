//! Connections to the code interpreter in a sandbox, which is a program of its image.
//!
//! ```text
//! admission (execution slot, resume) -> port 49999 -> refused: start the program, port 49999 again -> the server's exchange
//! ```
//! The program is started with the first connection and keeps its kernels until the sandbox ends. If it dies, the next connection
//! starts it again. Dropping a [`CodeConnection`] closes the connection, which interrupts the code, and frees its slot. In a sandbox
//! with a default user it runs as that user, in the user's home.

use std::time::Duration;

use api::{CodeRequest, ExecuteRequest, SandboxState};
use base::millis;
use guest_proto::{ExecSpec, Exit, RefusalKind, StdinMode};
use rules::{AutoResume, CommandOutcome, Operation};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::create::DEFAULT_USER;
use crate::error::{CodeError, EngineError};
use crate::link::{CommandEvent, LinkError, Tunnel};
use crate::record::events::ExecEvents;
use crate::record::status::Status;
use crate::registry::mailbox::{Admission, Permit};
use crate::sandbox::SandboxHandle;
use crate::work::agent_timeout::{AGENT_TIMEOUT, AgentTimeout, DIAL_TIMEOUT};
use crate::work::run_as::{environment, run_as};

/// The port on which an interpreter listens inside.
pub(crate) const PORT: u16 = 49_999;
/// The program binds its port before it goes into the background, so the port accepts connections when this command has ended.
const START: &str = "command -v code-interpreter >/dev/null || exit 127; exec code-interpreter";
/// For a program that does not go into the background.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const NOT_FOUND: i32 = 127;
/// The home of the user of a command.
const HOME: &str = "~";

/// A connection to the interpreter. It holds an execution slot.
pub struct CodeConnection {
    pub tunnel: Tunnel,
    _permit: Permit,
}

/// One execution of code: its events and its time limit.
pub struct CodeRun {
    events: ExecEvents,
    started: Instant,
    /// The rest of the time limit when the current stretch of running time began.
    left: Duration,
    /// `None` while the sandbox is paused.
    running_since: Option<Instant>,
    status: watch::Receiver<Status>,
}

impl SandboxHandle<'_> {
    /// Connects to the interpreter in order to run code.
    pub async fn run_code(self, request: &CodeRequest) -> Result<(CodeConnection, CodeRun), EngineError> {
        let started = Instant::now();
        let limit = Duration::from_millis(request.timeout_ms);
        let entering = self.admit(request.auto_resume);
        let never = || rules::NeverStarted { timeout_ms: request.timeout_ms };
        let admission = tokio::time::timeout(limit, entering).await.map_err(|_| never())??;
        let described = ExecuteRequest {
            command: request.code.clone(),
            cwd: None,
            env: request.env.clone(),
            timeout_ms: request.timeout_ms,
            stdin: None,
            auto_resume: request.auto_resume,
            run_id: request.run_id.clone(),
            user: None,
        };
        let mut events = ExecEvents::new(&self.services.stamped_store, &admission.record, &described);
        let status = admission.status.clone();
        let connected = connect(admission).await.inspect_err(|error| events.failed(&error.to_string()));
        let connection = self.explain_not_found(connected).await?;
        events.started();
        let left = limit.saturating_sub(started.elapsed());
        Ok((connection, CodeRun { events, started, left, running_since: None, status }))
    }

    /// Connects to the interpreter in order to manage its contexts.
    pub async fn connect_interpreter(self, auto_resume: bool) -> Result<CodeConnection, EngineError> {
        let connected = connect(self.admit(auto_resume).await?).await;
        self.explain_not_found(connected).await
    }

    async fn admit(self, auto_resume: bool) -> Result<Admission, EngineError> {
        self.enter(Operation::Execute { auto_resume: AutoResume::from(auto_resume) }).await
    }
}

async fn connect(admission: Admission) -> Result<CodeConnection, EngineError> {
    let tunnel = dial(&admission).await?.map_err(|error| match error {
        LinkError::Refused { kind: RefusalKind::Connect, message } => {
            EngineError::Code(CodeError::InterpreterFailed { reason: message })
        }
        error => error.into(),
    })?;
    Ok(CodeConnection { tunnel, _permit: admission.permit })
}

/// Connects to the interpreter's port. The outer error is that of the interpreter's start.
pub(crate) async fn dial(admission: &Admission) -> Result<Result<Tunnel, LinkError>, EngineError> {
    match admission.agent.dial(PORT, DIAL_TIMEOUT).await {
        Err(LinkError::Refused { kind: RefusalKind::Connect, .. }) => {
            start(admission).await?;
            Ok(admission.agent.dial(PORT, DIAL_TIMEOUT).await)
        }
        dialed => Ok(dialed),
    }
}

/// Starts the program, which outlives this command. Concurrent starts are harmless: only one can bind the port.
async fn start(admission: &Admission) -> Result<(), EngineError> {
    let record = &admission.record;
    let user = record.config.default_user.then_some(DEFAULT_USER);
    let env = environment(record, &Default::default(), user);
    let spec = ExecSpec {
        argv: vec!["bash", "-c", "--", START],
        env: env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        cwd: if user.is_some() { HOME } else { &record.config.workdir },
        stdin: StdinMode::Null,
    };
    let mut timeout = AgentTimeout::new(AGENT_TIMEOUT, admission.status.clone());
    let exec = admission.agent.exec(spec, run_as(&record.config, user));
    let mut command = match timeout.answer(exec).await {
        Ok(command) => command,
        Err(LinkError::Refused { message, .. }) => {
            return Err(CodeError::InterpreterFailed { reason: message }.into());
        }
        Err(error) => return Err(error.into()),
    };
    let ended = async {
        loop {
            match command.next().await {
                CommandEvent::Output(..) => {}
                CommandEvent::Exited { exit, .. } => return Ok(exit),
                CommandEvent::Lost => return Err(EngineError::from(LinkError::Closed)),
            }
        }
    };
    let late = || {
        EngineError::Code(CodeError::InterpreterFailed {
            reason: format!("it did not go into the background within {} s", START_TIMEOUT.as_secs()),
        })
    };
    match timeout.with_duration(START_TIMEOUT).wait(ended).await.map_err(|_| late())?? {
        Exit::Code(0) => Ok(()),
        Exit::Code(NOT_FOUND) => Err(EngineError::Code(CodeError::NoInterpreter)),
        exit => {
            Err(EngineError::Code(CodeError::InterpreterFailed { reason: format!("it ended with {exit:?}") }))
        }
    }
}

impl CodeRun {
    /// Waits for `work`; `None` when the time limit of the code is over. Time during which the sandbox is paused does not count.
    pub async fn within<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let is_paused = self.status.borrow_and_update().state() == SandboxState::Paused;
            match self.running_since {
                Some(since) if is_paused => {
                    self.left = self.left.saturating_sub(since.elapsed());
                    self.running_since = None;
                }
                None if !is_paused => self.running_since = Some(Instant::now()),
                _ => {}
            }
            let until = self.running_since.map_or_else(Instant::now, |since| since + self.left);
            tokio::select! {
                biased;
                done = &mut work => return Some(done),
                Ok(()) = self.status.changed() => {}
                () = tokio::time::sleep_until(until), if !is_paused => return None,
            }
        }
    }

    /// Counts output for the events.
    pub fn count(&mut self, stdout: usize, stderr: usize) {
        self.events.stdout_bytes += stdout as u64;
        self.events.stderr_bytes += stderr as u64;
    }

    /// Marks the output as streamed to the client, which the events report.
    pub fn streamed(&mut self) {
        self.events.is_streamed = true;
    }

    /// Records the end: exit code 0, or 1 if the code raised an exception. Returns the duration in ms.
    pub fn completed(&mut self, raised: bool) -> u64 {
        let duration_ms = millis(self.started.elapsed());
        let outcome = CommandOutcome { exit_code: Some(i32::from(raised)), ..CommandOutcome::default() };
        self.events.completed(&outcome, duration_ms);
        duration_ms
    }

    /// Records that the outcome is unknown.
    pub fn failed(&mut self, message: &str) {
        self.events.failed(message);
    }
}
