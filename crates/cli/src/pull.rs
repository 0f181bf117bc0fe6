//! How far the service is with an image, looked up and shown while a create waits for it. Called by `create` and `run`. A service
//! that does not tell, and one that a key may not ask, is waited for all the same, without a bar.

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use sandboxd_client::{Client, Code};

use crate::progress::Progress;

/// Between the first looks. They count as any others against the rate of the key.
const SOON: Duration = Duration::from_millis(333);
/// Of these there are so many.
const FIRST: u32 = 30;
/// Between those of who waits long, so that a minute's rate has room for others.
const LATER: Duration = Duration::from_secs(1);
/// Where there is none left.
const MUCH_LATER: Duration = Duration::from_secs(10);

/// One image that is waited for. Its line goes with it.
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

    /// Whether a person sees how far it is.
    pub fn is_watched(&self) -> bool {
        self.progress.is_wanted()
    }

    /// Shows how far it is, again and again.
    pub async fn show(&self) -> std::convert::Infallible {
        loop {
            self.over().await;
        }
    }

    /// The same until the image is here, or is fetched no more. Where nobody watches, never.
    pub async fn over(&self) {
        if !self.is_watched() {
            return pending().await;
        }
        loop {
            // Most creates need no look at all.
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
                // The create says what there is to say.
                Err(_) => {}
            }
        }
    }

    /// Takes the line away, until there is another look.
    pub fn hide(&self) {
        self.progress.done();
    }
}

impl Drop for Pull<'_> {
    fn drop(&mut self) {
        self.hide();
    }
}

/// How long to wait after so many looks.
fn between(looks: u32) -> Duration {
    if looks < FIRST { SOON } else { LATER }
}

/// Whether another look would be answered the same.
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
