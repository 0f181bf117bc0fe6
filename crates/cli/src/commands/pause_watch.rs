//! Watches whether the sandbox is paused under a command that sbx follows: the command waits then, and its time limit does not run.
//! Called by `run` and `exec`.
//!
//! A pause by a user is left to users. One for lack of disk space may last until the operator frees some, so sbx gives up after its
//! longest wait for limits, as it does with requests: a script would wait for ever.

use std::time::{Duration, Instant};

use sandboxd_client::{EventKind, Sandbox, SandboxState};
use tokio::time::sleep;

use crate::limit_wait::{LIMIT_WAIT, gave_up};
use crate::output;

/// How often sbx looks whether the sandbox was paused under the command.
const CHECK_INTERVAL: Duration = Duration::from_secs(15);
const DISK_PRESSURE: &str = "disk_pressure";

/// sbx has stopped waiting for a command whose sandbox is paused until the host has disk space.
#[derive(Debug)]
pub struct StillPaused {
    waited: Duration,
}

impl std::fmt::Display for StillPaused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        gave_up(self.waited).iter().try_for_each(|tried| write!(f, "{tried}: "))?;
        write!(
            f,
            "the disk of the host is almost full (reason '{DISK_PRESSURE}'), so the sandbox is paused, and the command with it"
        )
    }
}

impl std::error::Error for StillPaused {}

/// Says when the sandbox is paused, and returns when sbx should wait no longer for it.
pub async fn watch_pauses(sandbox: &Sandbox) -> StillPaused {
    let mut watch = PauseWatch::default();
    loop {
        sleep(CHECK_INTERVAL).await;
        // Without an answer the output says more.
        let Ok(view) = sandbox.refresh().await else { continue };
        if view.state != SandboxState::Paused {
            watch = PauseWatch::default();
            continue;
        }
        if watch.paused.is_none() {
            // Without an answer the next check asks again: by the reason sbx decides whether it gives up.
            let Ok(reason) = reason_of_pause(sandbox).await else { continue };
            output::note(&paused_note(sandbox.id().as_str(), reason.as_deref()));
            watch.begin(reason.as_deref(), Instant::now());
        }
        if let Some(still_paused) = watch.give_up(Instant::now()) {
            return still_paused;
        }
    }
}

/// The pause of the sandbox, if it is paused.
#[derive(Debug, Default)]
struct PauseWatch {
    paused: Option<Pause>,
}

#[derive(Debug, Clone, Copy)]
struct Pause {
    seen: Instant,
    is_for_disk: bool,
}

impl PauseWatch {
    fn begin(&mut self, reason: Option<&str>, now: Instant) {
        self.paused = Some(Pause { seen: now, is_for_disk: reason == Some(DISK_PRESSURE) });
    }

    fn give_up(&self, now: Instant) -> Option<StillPaused> {
        let pause = self.paused.filter(|pause| pause.is_for_disk)?;
        let waited = now.saturating_duration_since(pause.seen);
        (waited >= LIMIT_WAIT).then_some(StillPaused { waited })
    }
}

/// Why the sandbox was paused last; `None` if its event does not say.
async fn reason_of_pause(sandbox: &Sandbox) -> sandboxd_client::Result<Option<String>> {
    let events = sandbox.events().kind(EventKind::SandboxPaused).newest_first().page_size(1);
    let newest = events.page(0).await?.data.into_iter().next();
    Ok(newest.and_then(|newest| newest.data.get("reason")?.as_str().map(str::to_owned)))
}

fn paused_note(id: &str, reason: Option<&str>) -> String {
    let why = match reason {
        Some(DISK_PRESSURE) => {
            "the disk of the host is almost full (reason 'disk_pressure'); it can be resumed when space is free".to_owned()
        }
        Some(reason) => format!("the reason is '{reason}'"),
        None => format!("'sbx events {id}' says why"),
    };
    format!("sbx: the sandbox is paused, and the command with it: {why}; 'sbx resume {id}' continues both")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sbx_waits_for_disk_space_as_long_as_for_limits() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let mut watch = PauseWatch::default();
        assert!(watch.give_up(begin + LIMIT_WAIT).is_none(), "it is not paused");
        watch.begin(Some("disk_pressure"), begin);
        assert!(watch.give_up(begin + LIMIT_WAIT - second).is_none());
        let text = watch.give_up(begin + LIMIT_WAIT).unwrap().to_string();
        assert!(text.starts_with("gave up after 2m: the disk of the host is almost full"), "{text}");
    }

    #[test]
    fn sbx_waits_for_users_without_end() {
        let begin = Instant::now();
        for reason in [Some("request"), None] {
            let mut watch = PauseWatch::default();
            watch.begin(reason, begin);
            assert!(watch.give_up(begin + 100 * LIMIT_WAIT).is_none(), "{reason:?}");
        }
    }

    #[test]
    fn the_note_of_a_pause_says_why() {
        let note = paused_note("sbx_1", Some("disk_pressure"));
        assert!(note.contains("disk of the host is almost full (reason 'disk_pressure')"), "{note}");
        assert!(note.ends_with("'sbx resume sbx_1' continues both"), "{note}");
        assert!(paused_note("sbx_1", Some("request")).contains("the reason is 'request'"));
        assert!(paused_note("sbx_1", None).contains("'sbx events sbx_1' says why"));
    }
}
