//! How far the service is with an image, looked up and shown while a create waits for it. Called by `create` and `run`. A service
//! that does not tell, and one that a key may not ask, is waited for all the same, without a bar.

use std::future::pending;
use std::time::Duration;

use client::{Client, Code};

use crate::progress::Progress;

const BETWEEN: Duration = Duration::from_millis(333);

/// One image that is waited for. Its line goes with it.
pub struct Pull<'a> {
    client: &'a Client,
    image: &'a str,
    progress: Progress,
}

impl<'a> Pull<'a> {
    pub fn new(client: &'a Client, image: &'a str, quiet: bool) -> Self {
        Self { client, image, progress: Progress::new(image, None, quiet) }
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
            tokio::time::sleep(BETWEEN).await;
            match self.client.image(self.image).await {
                Ok(image) => match image.and_then(|image| image.progress) {
                    Some(progress) => self.progress.pull(&progress),
                    None => {
                        self.hide();
                        return;
                    }
                },
                Err(error) if is_final(error.code()) => return pending().await,
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

/// Whether another look would be answered the same.
fn is_final(code: Code) -> bool {
    matches!(code, Code::Forbidden | Code::Unauthorized | Code::NotFound | Code::InvalidRequest)
}
