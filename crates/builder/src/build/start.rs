//! Runs the start command of a template, and waits until it is ready.

use std::time::Duration;

use dockerfile::{ImageSettings, Run};
use engine::{EngineError, ProcessEnd, ProcessEvent, SandboxHandle};
use rules::{AfterFailedCheck, FailedChecks};
use tokio::time::Instant;

use crate::build::last_output::LastOutput;
use crate::build::output_log::OutputLog;
use crate::build::step::request;
use crate::error::{BuildError, Ended};
use crate::log::BuildLog;
use crate::template::StartCommand;

/// The tag of the process of the start command.
const TAG: &str = "start";
const INTERVAL: Duration = Duration::from_millis(200);
/// One check. A check that hangs is repeated.
const CHECK_MS: u64 = 10_000;
/// How long a start command without a check has to stay alive.
const SETTLES: Duration = Duration::from_millis(500);

/// Starts the command, and returns when it is ready. It keeps running.
pub async fn start(
    sandbox: SandboxHandle<'_>,
    settings: &ImageSettings,
    start: &StartCommand,
    log: Option<&BuildLog>,
) -> Result<(), Ended> {
    let command = settings.shell_command(&start.command);
    let mut process = sandbox.start_process(request(&command, Some(TAG), None)).await?;
    let ready = async {
        match &start.ready {
            Some(check) => wait_until(sandbox, settings, (start, check.as_str()), log).await,
            None => {
                let is_build = log.is_some();
                let settles = start.settles_ms.filter(|_| is_build).map(Duration::from_millis);
                tokio::time::sleep(settles.unwrap_or(SETTLES)).await;
                Ok(())
            }
        }
    };
    let ended = async {
        let (mut output, mut last) = (log.map(OutputLog::new), LastOutput::default());
        loop {
            let event = process.next().await?;
            last.add(&event);
            let end = match &mut output {
                Some(output) => output.add(event),
                None => match event {
                    ProcessEvent::Ended(end) => Some(end),
                    _ => None,
                },
            };
            match end {
                // It has set something up, such as a program in the background, and what follows decides.
                Some(ProcessEnd::Exited(0)) if start.may_end() => return std::future::pending().await,
                Some(end) => return Ok::<_, EngineError>(last.failure("the start command", &end)),
                None => {}
            }
        }
    };
    tokio::select! {
        ready = ready => ready,
        failure = ended => Err(BuildError::new(failure?).into()),
    }
}

/// Repeats the check until it succeeds. The log and the error have the reason why it does not.
async fn wait_until(
    sandbox: SandboxHandle<'_>,
    settings: &ImageSettings,
    (start, check): (&StartCommand, &str),
    log: Option<&BuildLog>,
) -> Result<(), Ended> {
    let (check, begin) = (settings.shell_command(check), Instant::now());
    let deadline = begin + Duration::from_millis(start.timeout_ms);
    let (mut checks, mut last) = (FailedChecks::default(), None::<String>);
    loop {
        let checked = tokio::time::timeout_at(deadline, failed_check(sandbox, &check)).await;
        let failed = match checked {
            Ok(failed) => failed?,
            Err(_) => return Err(late(start.timeout_ms, last.as_deref()).into()),
        };
        let Some((message, missing)) = failed else { return Ok(()) };
        let now_ms = base::millis(begin.elapsed());
        match checks.add(now_ms, missing.as_deref()) {
            AfterFailedCheck::GiveUp => return Err(BuildError::new(message).into()),
            AfterFailedCheck::RepeatWithNote => {
                if let Some(log) = log {
                    log.note(&format!("not ready after {} s: {message}", now_ms / 1000));
                }
            }
            AfterFailedCheck::Repeat => {}
        }
        last = Some(message);
        if tokio::time::timeout_at(deadline, tokio::time::sleep(INTERVAL)).await.is_err() {
            return Err(late(start.timeout_ms, last.as_deref()).into());
        }
    }
}

fn late(timeout_ms: u64, last: Option<&str>) -> BuildError {
    let reason = last.map(|last| format!(": {last}")).unwrap_or_default();
    BuildError::new(format!("the start command was not ready after {timeout_ms} ms{reason}"))
}

/// Runs the check once. `None` if it succeeds, otherwise how it fails and the program that it lacks.
async fn failed_check(
    sandbox: SandboxHandle<'_>,
    check: &Run,
) -> Result<Option<(String, Option<String>)>, EngineError> {
    let mut process = sandbox.start_process(request(check, None, Some(CHECK_MS))).await?;
    let mut last = LastOutput::default();
    loop {
        let event = process.next().await?;
        last.add(&event);
        match event {
            ProcessEvent::Ended(ProcessEnd::Exited(0)) => return Ok(None),
            ProcessEvent::Ended(end) => {
                let message = last.failure("the ready command", &end);
                return Ok(Some((message, last.missing().map(str::to_owned))));
            }
            ProcessEvent::Output(..) | ProcessEvent::Dropped => {}
        }
    }
}
