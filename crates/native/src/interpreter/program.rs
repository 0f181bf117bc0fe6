//! The program of the code interpreter, which is part of an image: starts it and connects to it.
//!
//! ```text
//! admission -> port 49999 -> refused: start the program, port 49999 again
//! ```
//! The program is started with the first connection and keeps its kernels until the sandbox ends. If it dies, the next connection
//! starts it again. In a sandbox with a default user it runs as that user, in the user's home.

use std::time::Duration;

use api::{ErrorCode, SandboxId};
use engine::{Admission, AgentError, Engine, EngineError, Exit, Exposure, Permit, ProcessError, Tunnel};

use admission::error::ApiError;
use service::error::{OperationKind, no_interpreter, of_engine};

/// The port on which the program listens inside.
const PORT: u16 = 49_999;
/// The program binds its port before it goes into the background, so the port accepts connections when this command has ended.
const START: [&str; 4] =
    ["bash", "-c", "--", "command -v code-interpreter >/dev/null || exit 127; exec code-interpreter"];
/// For a program that does not go into the background.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const NOT_FOUND: i32 = 127;
/// Writes a file, because free space that a file system reports may be that of another one.
const FILL_FILE: [&str; 4] = [
    "bash",
    "-c",
    "--",
    r#"export LC_ALL=C
message=$( { file=$(mktemp) && head -c 65536 /dev/zero >"$file"; rm -f "$file"; } 2>&1 )
case $message in *"No space left"* | *"quota exceeded"*) exit 28 ;; esac"#,
];
const FILL_FILE_TIMEOUT: Duration = Duration::from_secs(10);
const NO_SPACE: i32 = 28;

/// A connection to the program. Dropping it closes the connection, which interrupts the code, and frees its execution slot.
pub struct InterpreterConnection {
    pub tunnel: Tunnel,
    pub permit: Permit,
}

/// Why the program cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("the sandbox's image has no program 'code-interpreter'")]
    Missing,
    #[error("the code interpreter of the sandbox did not start: {reason}")]
    NotStarted { reason: String },
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl ProgramError {
    /// The error of a request for this sandbox.
    pub fn of_sandbox(self, id: &SandboxId) -> ApiError {
        let error = match self {
            Self::Engine(error) => return of_engine(error, Some(id.as_str()), OperationKind::Execute),
            Self::Missing => no_interpreter(),
            error @ Self::NotStarted { .. } => ApiError::new(ErrorCode::ExecutionError, error.to_string()),
        };
        error.with_detail("sandboxId", id.as_str())
    }
}

/// Connects to the program, which is started if it does not run.
pub async fn connect(admission: Admission) -> Result<InterpreterConnection, ProgramError> {
    let tunnel = dial(&admission).await?.map_err(|error| match error {
        EngineError::Agent(AgentError::PortUnreachable { message }) => {
            ProgramError::NotStarted { reason: message }
        }
        error => error.into(),
    })?;
    Ok(InterpreterConnection { tunnel, permit: admission.into_permit() })
}

/// Connects to an exposed port. If it is open without being exposed and is the program's, the program is started where the image has one.
pub async fn connect_port(engine: &Engine, exposure: &Exposure) -> Result<(Tunnel, Permit), EngineError> {
    if !exposure.is_implicit || exposure.port.port != PORT {
        return engine.connect_port(exposure).await;
    }
    let admission = engine.admit_port(exposure).await?;
    let tunnel = match dial(&admission).await {
        Ok(dialed) => dialed?,
        Err(error) => {
            tracing::debug!(sandbox = %exposure.record.id, %error, "the code interpreter did not start");
            admission.dial(PORT).await?
        }
    };
    Ok((tunnel, admission.into_permit()))
}

/// The outer error is that of the program's start.
async fn dial(admission: &Admission) -> Result<Result<Tunnel, EngineError>, ProgramError> {
    match admission.dial(PORT).await {
        Err(EngineError::Agent(AgentError::PortUnreachable { .. })) => {
            start(admission).await?;
            Ok(admission.dial(PORT).await)
        }
        dialed => Ok(dialed),
    }
}

/// Whether programs inside cannot write because the disk is full: the program then fails without a reason.
pub async fn is_disk_full(admission: Admission) -> bool {
    let exit = admission.run_program(&FILL_FILE, FILL_FILE_TIMEOUT).await;
    matches!(exit, Ok(Some(Exit::Code(NO_SPACE))))
}

/// Starts the program, which outlives this command. Concurrent starts are harmless: only one can bind the port.
async fn start(admission: &Admission) -> Result<(), ProgramError> {
    let reason = match admission.run_program(&START, START_TIMEOUT).await {
        Ok(Some(Exit::Code(0))) => return Ok(()),
        Ok(Some(Exit::Code(NOT_FOUND))) => return Err(ProgramError::Missing),
        Ok(Some(exit)) => format!("it ended with {exit:?}"),
        Ok(None) => format!("it did not go into the background within {} s", START_TIMEOUT.as_secs()),
        Err(EngineError::Process(ProcessError::Refused { message, .. })) => message,
        Err(error) => return Err(error.into()),
    };
    Err(ProgramError::NotStarted { reason })
}
