//! Requests and shows the progress of a pull while a create waits for the image. Called by `create` and `run`. If the
//! service does not report progress, or the key may not read it, the create waits without a progress bar.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sandboxd_client::{Client, Code};

use crate::output::OutputFormat;
use crate::progress::ProgressLine;

/// Interval of the first requests, which count against the rate limit of the key.
const FIRST_INTERVAL: Duration = Duration::from_millis(333);
/// Number of requests with the first interval.
const FIRST_REQUESTS: u32 = 30;
/// Interval of later requests, which leaves most of the key's rate limit for other requests.
const LATER_INTERVAL: Duration = Duration::from_secs(1);
/// Interval after the rate limit was reached.
const RATE_LIMITED_INTERVAL: Duration = Duration::from_secs(10);

/// The pull of an image. Dropping it removes the progress line.
pub struct Pull<'a> {
    client: &'a Client,
    image: &'a str,
    progress: ProgressLine,
    requests: AtomicU32,
}

impl<'a> Pull<'a> {
    /// Shows progress only beside plain output.
    pub fn new(client: &'a Client, image: &'a str, format: OutputFormat) -> Self {
        let progress = match format {
            OutputFormat::Plain => ProgressLine::new(image, None),
            OutputFormat::Json => ProgressLine::none(),
        };
        Self { client, image, progress, requests: AtomicU32::new(0) }
    }

    /// Whether the progress is shown.
    pub fn shows_progress(&self) -> bool {
        self.progress.is_shown()
    }

    /// Shows the progress until the future is dropped.
    pub async fn show(&self) -> std::convert::Infallible {
        loop {
            self.ended().await;
        }
    }

    /// Shows the progress until the pull ends. Never returns if no progress is shown.
    pub async fn ended(&self) {
        if !self.shows_progress() {
            return pending().await;
        }
        loop {
            // Waits first: most creates finish within the first interval and need no request.
            tokio::time::sleep(interval_after(self.requests.fetch_add(1, Relaxed))).await;
            match self.client.image(self.image).await {
                Ok(image) => match image.and_then(|image| image.progress) {
                    Some(progress) => self.progress.pull(&progress),
                    None => {
                        self.hide();
                        return;
                    }
                },
                Err(error) if is_final(error.code()) => return pending().await,
                Err(error) if error.code() == Code::RateLimited => {
                    tokio::time::sleep(RATE_LIMITED_INTERVAL).await;
                }
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
fn interval_after(requests: u32) -> Duration {
    if requests < FIRST_REQUESTS { FIRST_INTERVAL } else { LATER_INTERVAL }
}

/// Whether further requests would fail too.
fn is_final(code: Code) -> bool {
    matches!(code, Code::Forbidden | Code::Unauthorized | Code::NotFound | Code::InvalidRequest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The service's default limit is 300 reads per minute and key.
    #[test]
    fn two_waiting_clients_leave_most_of_the_rate_limit() {
        let mut time = Duration::ZERO;
        let requests = (0..).take_while(|requests| {
            time += interval_after(*requests);
            time < Duration::from_secs(60)
        });
        let requests = requests.count();
        assert!((60..100).contains(&requests), "{requests}");
    }
}
