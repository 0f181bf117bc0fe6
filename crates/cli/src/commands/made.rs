//! Waiting for a new sandbox, whose image may have to be fetched first. Called by `create` and `run`. Whoever is interrupted leaves
//! no sandbox behind.

use std::time::Duration;

use anyhow::Result;
use sandboxd_client::{Client, Code, Create, Error, Sandbox};
use tokio::time::Instant;

use crate::interrupt::Interrupt;
use crate::output::note;
use crate::pull::Pull;

/// Where a service names no time of its own.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// How long there may be no room, where nothing else is said.
const ROOM: Duration = Duration::from_secs(120);
/// How long an image may be fetched while nobody sees how far it is.
const IMAGE: Duration = Duration::from_secs(600);

/// What came of waiting for a sandbox.
pub enum Made {
    Sandbox(Sandbox),
    /// Interrupted meanwhile, with the exit code for that. There is no sandbox.
    Interrupted(u8),
}

/// Who waits, and for how long.
pub struct Waiting<'a> {
    pub client: &'a Client,
    pub image: &'a str,
    /// At most, if anything was said.
    pub wait: Option<Duration>,
    /// No bar.
    pub quiet: bool,
    pub interrupt: &'a Interrupt,
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is being fetched.
    Image,
    Room,
}

/// Makes a sandbox; where the service has no room, or still fetches the image, again and again until the time is over.
pub async fn made(waiting: Waiting<'_>, ask: impl Fn() -> Result<Create>) -> Result<Made> {
    let interrupt = waiting.interrupt;
    let pull = Pull::new(waiting.client, waiting.image, waiting.quiet);
    let begin = Instant::now();
    let mut since: Option<(Missing, Instant)> = None;
    loop {
        let (answer, interrupted) = answered(ask()?, &pull, interrupt).await;
        let error = match (answer, interrupted) {
            (Ok(sandbox), None) => return Ok(Made::Sandbox(sandbox)),
            (Ok(sandbox), Some(code)) => {
                remove(&sandbox).await;
                return Ok(Made::Interrupted(code));
            }
            (Err(_), Some(code)) => return Ok(Made::Interrupted(code)),
            (Err(error), None) => error,
        };
        let Some(missing) = missing(&error) else { return Err(error.into()) };
        let is_told = since.is_some_and(|(before, _)| before == missing);
        let began = match since {
            Some((before, began)) if before == missing => began,
            Some(_) => Instant::now(),
            None => begin,
        };
        since = Some((missing, began));
        let pause = error.retry_after().unwrap_or(LOOK_AGAIN);
        let waited = if waiting.wait.is_some() { begin } else { began }.elapsed();
        if limit(waiting.wait, missing, pull.is_watched()).is_some_and(|limit| waited + pause > limit) {
            return Err(error.into());
        }
        let is_seen = missing == Missing::Image && pull.is_watched();
        if !is_told && !is_seen {
            pull.hide();
            note(&format!("sbx: waiting: {}", error.message()));
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // It is here, and what the service asked to wait for has happened.
            () = pull.over(), if missing == Missing::Image => {}
            code = interrupt.first() => return Ok(Made::Interrupted(code)),
        }
    }
}

/// The answer to one create, and the exit code of who was interrupted meanwhile. It is not cut off half-way: nobody would know of the
/// sandbox.
async fn answered(
    create: Create,
    pull: &Pull<'_>,
    interrupt: &Interrupt,
) -> (sandboxd_client::Result<Sandbox>, Option<u8>) {
    let mut answer = create.without_waiting().into_future();
    let code = tokio::select! {
        answer = &mut answer => return (answer, None),
        code = interrupt.first() => code,
        never = pull.show() => match never {},
    };
    pull.hide();
    note("sbx: leaving when the service has answered; Ctrl-C again leaves at once");
    (answer.await, Some(code))
}

/// What may be there in a while; nothing where the error is another one.
fn missing(error: &Error) -> Option<Missing> {
    if error.code() != Code::ResourceExhausted {
        return None;
    }
    let is_image = error.details().get("field").is_some_and(|field| field == "image");
    Some(if is_image { Missing::Image } else { Missing::Room })
}

/// How long is waited for it; nothing for as long as it takes, which a person sees and can end.
fn limit(given: Option<Duration>, missing: Missing, is_watched: bool) -> Option<Duration> {
    match (given, missing) {
        (Some(given), _) => Some(given),
        (None, Missing::Room) => Some(ROOM),
        (None, Missing::Image) => (!is_watched).then_some(IMAGE),
    }
}

/// The result of a command counts more than a sandbox that stays for a minute.
pub async fn remove(sandbox: &Sandbox) {
    if let Err(error) = sandbox.terminate().await {
        let id = sandbox.id();
        note(&format!("sbx: {id} could not be removed: {error}; it ends by itself, or with 'sbx rm {id}'"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fetch_that_is_seen_goes_on_without_end() {
        let minute = Some(Duration::from_secs(60));
        for missing in [Missing::Image, Missing::Room] {
            assert_eq!(limit(minute, missing, true), minute);
            assert_eq!(limit(minute, missing, false), minute);
        }
        assert_eq!(limit(None, Missing::Image, true), None);
        assert_eq!(limit(None, Missing::Image, false), Some(IMAGE));
        assert_eq!(limit(None, Missing::Room, true), Some(ROOM));
    }
}
