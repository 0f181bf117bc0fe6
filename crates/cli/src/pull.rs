//! How far the service is with an image, looked up and shown while a create waits for it. Called by `create` and `run`. A service
//! that does not tell, and one that a key may not ask, is waited for all the same, without a bar.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sandboxd_client::{Client, Code};

use crate::progress::Progress;

/// Interval of the first requests, which count against the rate limit of the key.
const SOON: Duration = Duration::from_millis(333);
/// Number of requests with the first interval.
const FIRST: u32 = 30;
/// Interval of later requests, which leaves most of the rate limit to others.
const LATER: Duration = Duration::from_secs(1);
/// Interval after the rate limit was reached.
const MUCH_LATER: Duration = Duration::from_secs(10);

/// The pull of an image. Dropping it removes the progress line.
pub struct Pull<'a> {
    client: &'a Client,
    image: &'a str,
    progress: Progress,
    looks: AtomicU32,
}

impl<'a> Pull<'a> {
    pub fn new(client: &'a Client, image: &'a str, quiet: bool) -> Self {
        Self { client, image, progress: Progress::new(image, None, quiet), looks: AtomicU32::new(0) }
    }

    /// Whether the progress is shown.
    pub fn is_watched(&self) -> bool {
        self.progress.is_wanted()
    }

    /// Shows the progress for ever.
    pub async fn show(&self) -> std::convert::Infallible {
        loop {
            self.over().await;
        }
    }

    /// Shows the progress until the pull ends. Never returns if no progress is shown.
    pub async fn over(&self) {
        if !self.is_watched() {
            return pending().await;
        }
        loop {
            // Most creates are faster than the first interval.
            tokio::time::sleep(between(self.looks.fetch_add(1, Relaxed))).await;
            match self.client.image(self.image).await {
                Ok(image) => match image.and_then(|image| image.progress) {
                    Some(progress) => self.progress.pull(&progress),
                    None => {
                        self.hide();
                        return;
                    }
                },
                Err(error) if is_final(error.code()) => return pending().await,
                Err(error) if error.code() == Code::RateLimited => tokio::time::sleep(MUCH_LATER).await,
                // The create reports errors.
                Err(_) => {}
            }
        }
    }

    /// Removes the line until the next update.
    pub fn hide(&self) {
        self.progress.done();
    }
}

impl Drop for Pull<'_> {
    fn drop(&mut self) {
        self.hide();
    }
}

/// The interval after a number of requests.
fn between(looks: u32) -> Duration {
    if looks < FIRST { SOON } else { LATER }
}

/// Whether further requests would fail too.
fn is_final(code: Code) -> bool {
    matches!(code, Code::Forbidden | Code::Unauthorized | Code::NotFound | Code::InvalidRequest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes with the service is 300 reads a minute for a key.
    #[test]
    fn two_who_wait_leave_room_for_others() {
        let mut time = Duration::ZERO;
        let looks = (0..).take_while(|looks| {
            time += between(*looks);
            time < Duration::from_secs(60)
        });
        let looks = looks.count();
        assert!((60..100).contains(&looks), "{looks}");
    }
}
