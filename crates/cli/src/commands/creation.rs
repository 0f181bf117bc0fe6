//! Creates a sandbox, waiting for capacity, for rate limits and for the pull of its image. Called by `create` and `run`. An interrupted
//! create leaves no sandbox behind.

use std::time::Duration;

use anyhow::Result;
use sandboxd_client::{Client, Code, Create, Error, Sandbox};
use tokio::time::Instant;

use super::snapshot_names::newest_snapshot;
use crate::interrupt::Interrupt;
use crate::limit_wait::{LIMIT_WAIT, Patience, announce, gave_up};
use crate::output::{OutputFormat, note};
use crate::pull::Pull;

/// Delay between attempts if the service sends no `Retry-After`.
const DEFAULT_RETRY_DELAY: Duration = Duration::from_secs(2);
/// Default limit for waiting for an image if no progress is shown.
const IMAGE_WAIT: Duration = Duration::from_secs(600);

/// The result of creating a sandbox.
pub enum Creation {
    Sandbox(Sandbox),
    /// Interrupted by a signal, with its exit code. There is no sandbox.
    Interrupted(u8),
}

/// What to wait for, and how long.
pub struct CreationOptions<'a> {
    pub client: &'a Client,
    pub image: &'a str,
    /// Limit given by the user.
    pub wait: Option<Duration>,
    /// Progress is shown only beside plain output.
    pub format: OutputFormat,
    pub interrupt: &'a Interrupt,
}

/// What a create waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// The image is being pulled.
    Image,
    /// Capacity, or a request within a rate limit.
    Limit,
}

/// Creates a sandbox, retrying until the limit while the service lacks capacity or the image, or a rate limit is reached. `request` is
/// called with a client that leaves all waiting to this function, and with the image.
pub async fn create_sandbox(
    options: CreationOptions<'_>,
    request: impl Fn(&Client, &str) -> Create,
) -> Result<Creation> {
    let (interrupt, client) = (options.interrupt, options.client.without_limit_waits());
    let pull = Pull::new(&client, options.image, options.format);
    let begin = Instant::now();
    let mut since: Option<(Missing, Instant)> = None;
    let mut snapshot = None;
    loop {
        let image = snapshot.as_deref().unwrap_or(options.image);
        let (response, interrupted) = send_create(request(&client, image), &pull, interrupt).await;
        let error = match (response, interrupted) {
            (Ok(sandbox), None) => return Ok(Creation::Sandbox(sandbox)),
            (Ok(sandbox), Some(code)) => {
                // With the client that waits for limits: the sandbox must not stay.
                remove(&options.client.sandbox(sandbox.id().as_str())?).await;
                return Ok(Creation::Interrupted(code));
            }
            (Err(_), Some(code)) => return Ok(Creation::Interrupted(code)),
            (Err(error), None) => error,
        };
        let Some(missing) = missing(&error) else {
            if snapshot.is_none() && is_unknown_image(&error) {
                snapshot = Some(snapshot_named(options.client, options.image).await.ok_or(error)?);
                continue;
            }
            return Err(error.into());
        };
        let began = match since {
            Some((before, began)) if before == missing => began,
            Some(_) => Instant::now(),
            None => begin,
        };
        since = Some((missing, began));
        let pause = error.retry_after().unwrap_or(DEFAULT_RETRY_DELAY);
        let waited = if options.wait.is_some() { begin } else { began }.elapsed();
        let limit = limit(options.wait, missing, pull.shows_progress());
        if limit.is_some_and(|limit| waited.saturating_add(pause) > limit) {
            return Err(match gave_up(waited) {
                Some(tried) => anyhow::Error::new(error).context(tried),
                None => error.into(),
            });
        }
        let shows_progress = missing == Missing::Image && pull.shows_progress();
        if !shows_progress {
            pull.hide();
            announce(&error, pause, Patience::OfCreate(limit));
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            // The pull has ended, so there is no need to wait for the rest of the delay.
            () = pull.ended(), if missing == Missing::Image => {}
            code = interrupt.first() => return Ok(Creation::Interrupted(code)),
        }
    }
}

/// Sends one create. Returns the response, and the exit code if sbx was interrupted meanwhile. The request is not
/// cancelled, because the id of the new sandbox would be lost.
async fn send_create(
    create: Create,
    pull: &Pull<'_>,
    interrupt: &Interrupt,
) -> (sandboxd_client::Result<Sandbox>, Option<u8>) {
    let mut response = create.without_waiting().into_future();
    let code = tokio::select! {
        response = &mut response => return (response, None),
        code = interrupt.first() => code,
        never = pull.show() => match never {},
    };
    pull.hide();
    note("sbx: stopping after the service has responded; press Ctrl-C again to exit at once");
    (response.await, Some(code))
}

/// What a create has to wait for; `None` for other errors.
fn missing(error: &Error) -> Option<Missing> {
    match error.code() {
        Code::RateLimited => Some(Missing::Limit),
        Code::ResourceExhausted if is_about_image(error) => Some(Missing::Image),
        Code::ResourceExhausted => Some(Missing::Limit),
        _ => None,
    }
}

fn is_about_image(error: &Error) -> bool {
    error.details().get("field").is_some_and(|field| field == "image")
}

fn is_unknown_image(error: &Error) -> bool {
    error.code() == Code::InvalidConfig && is_about_image(error)
}

/// The id of the newest snapshot with this name, which sbx accepts in place of the id. `None` if there is none.
async fn snapshot_named(client: &Client, name: &str) -> Option<String> {
    // The tag that Docker adds means the newest one, as with templates.
    let untagged = name.strip_suffix(":latest").unwrap_or(name);
    // If snapshots cannot be listed, the error of the create counts.
    let found = newest_snapshot(&client.snapshots().name(untagged)).await.ok()??;
    note(&format!("sbx: '{name}' is the snapshot {found}"));
    Some(found)
}

/// The limit for waiting. `None`: no limit, because a user sees the progress and can interrupt it.
fn limit(given: Option<Duration>, missing: Missing, shows_progress: bool) -> Option<Duration> {
    match (given, missing) {
        (Some(given), _) => Some(given),
        (None, Missing::Limit) => Some(LIMIT_WAIT),
        (None, Missing::Image) => (!shows_progress).then_some(IMAGE_WAIT),
    }
}

/// Terminates a sandbox. A failure is printed and does not change the exit code of sbx.
pub async fn remove(sandbox: &Sandbox) {
    if let Err(error) = sandbox.terminate().await
        // Somebody else has removed it, or its timeout has ended.
        && error.code() != Code::SandboxNotFound
    {
        let id = sandbox.id();
        note(&format!(
            "sbx: cannot terminate {id}: {error}; run 'sbx rm {id}', or wait until its timeout terminates it"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_visible_pull_is_awaited_without_limit() {
        let minute = Some(Duration::from_secs(60));
        for missing in [Missing::Image, Missing::Limit] {
            assert_eq!(limit(minute, missing, true), minute);
            assert_eq!(limit(minute, missing, false), minute);
        }
        assert_eq!(limit(None, Missing::Image, true), None);
        assert_eq!(limit(None, Missing::Image, false), Some(IMAGE_WAIT));
        assert_eq!(limit(None, Missing::Limit, true), Some(LIMIT_WAIT));
    }
}
