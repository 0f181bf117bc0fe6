//! Warnings before the timeout of a sandbox, for a client that is attached to one of its terminals.

use std::sync::Arc;
use std::time::Duration;

use rules::{TimeMs, expiry_notice, expiry_warning};
use tokio::sync::watch;

use crate::record::clock::Clock;
use crate::record::status::Status;

/// The timer accepts at most two years. Waking up too early is harmless.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// A timeout that ends soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiryWarning {
    /// A sentence for people.
    pub message: String,
    pub expires_at: TimeMs,
}

/// The warnings of one client.
pub struct ExpiryWarnings {
    status: watch::Receiver<Status>,
    clock: Clock,
    /// The end of the timeout that the client knows.
    warned_of: Option<TimeMs>,
}

impl ExpiryWarnings {
    pub fn new(status: watch::Receiver<Status>, clock: Clock) -> Self {
        Self { status, clock, warned_of: None }
    }

    /// Waits for the next warning, without end if there will be none. Cancel safe.
    pub async fn next(&mut self) -> ExpiryWarning {
        loop {
            let record = Arc::clone(&self.status.borrow_and_update().record);
            let now = self.clock.now();
            // A timeout that is over has an effect at once.
            let expires_at = record.expires_at().filter(|expires_at| *expires_at > now);
            let notice = expires_at.and_then(|at| Some((at, expiry_notice(at, self.warned_of)?)));
            let wait = match notice {
                Some((expires_at, notice_at)) if notice_at <= now => {
                    self.warned_of = Some(expires_at);
                    let left_ms = expires_at.since(now);
                    let message = expiry_warning(&record.id, record.config.on_timeout, left_ms);
                    return ExpiryWarning { message, expires_at };
                }
                Some((_, notice_at)) => Some(Duration::from_millis(notice_at.since(now)).min(LONGEST_WAIT)),
                None => None,
            };
            tokio::select! {
                () = sleep(wait) => {}
                // A pause, a resume or another timeout.
                changed = self.status.changed() => if changed.is_err() {
                    return std::future::pending().await;
                },
            }
        }
    }
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
