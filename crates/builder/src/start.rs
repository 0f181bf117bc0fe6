//! Runs the start command of a template, and waits until it is ready.

use std::time::Duration;

use engine::{EngineError, ProcessEnd, ProcessEvent, SandboxHandle};
use tokio::time::Instant;

use crate::error::{BuildError, Ended};
use crate::log::BuildLog;
use crate::step::{OutputLog, request};
use crate::template::{Settings, Start};

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
    settings: &Settings,
    start: &Start,
    log: Option<&BuildLog>,
) -> Result<(), Ended> {
    let command = settings.shell(&start.command);
    let mut process = sandbox.start_process(request(&command, Some(TAG), None)).await?;
    let deadline = Instant::now() + Duration::from_millis(start.timeout_ms);
    let ready = async {
        match &start.ready {
            Some(check) => wait_until(sandbox, settings, check).await,
            None => {
                let is_build = log.is_some();
                let settles = start.settles_ms.filter(|_| is_build).map(Duration::from_millis);
                tokio::time::sleep(settles.unwrap_or(SETTLES)).await;
                Ok(())
            }
        }
    };
    let ended = async {
        let mut output = log.map(OutputLog::new);
        loop {
            let event = process.next().await?;
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
                Some(end) => return Ok::<_, EngineError>(end),
                None => {}
            }
        }
    };
    tokio::select! {
        ready = tokio::time::timeout_at(deadline, ready) => match ready {
            Ok(ready) => ready,
            Err(_) => {
                let message = format!("the start command was not ready after {} ms", start.timeout_ms);
                Err(BuildError::new(message).into())
            }
        },
        ended = ended => Err(BuildError::new(match ended? {
            ProcessEnd::Exited(code) => format!("the start command exited with code {code}"),
            ProcessEnd::Signalled(signal) => format!("the start command was ended by {signal}"),
            ProcessEnd::TimedOut | ProcessEnd::Lost(_) => "the start command ended".to_owned(),
        })
        .into()),
    }
}

async fn wait_until(sandbox: SandboxHandle<'_>, settings: &Settings, check: &str) -> Result<(), Ended> {
    let check = settings.shell(check);
    loop {
        let mut process = sandbox.start_process(request(&check, None, Some(CHECK_MS))).await?;
        loop {
            match process.next().await? {
                ProcessEvent::Ended(ProcessEnd::Exited(0)) => return Ok(()),
                ProcessEvent::Ended(_) => break,
                _ => {}
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
