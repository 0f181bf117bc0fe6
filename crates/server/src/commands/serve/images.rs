//! `--fetch-images`: pulls the images of the catalogue that are missing on this host, for a first try of the service.
//!
//! The image of the example command is pulled before the daemon serves, the others while it serves: on a new machine the first
//! request is answered minutes earlier. A create that names an image whose pull is in progress waits for it.

use std::sync::Arc;

use image::{ImageError, Images, ProgressFn};
use tokio_util::sync::CancellationToken;

use super::welcome::EXAMPLE_IMAGE;
use crate::progress;

/// Pulls the image of the example command if the catalogue has it.
pub async fn fetch_example(images: &Images) {
    if images.is_in_catalogue(EXAMPLE_IMAGE) {
        fetch(images, EXAMPLE_IMAGE, progress::reporter()).await;
        progress::finish();
    }
}

/// Pulls the others, one after the other, until all are here or the daemon stops.
pub async fn fetch_others(images: Images, stopping: CancellationToken) {
    for name in images.names() {
        if name != EXAMPLE_IMAGE {
            // A line of progress would mix with the log of requests.
            let fetched = fetch(&images, &name, Arc::new(|_| ()));
            if stopping.run_until_cancelled(fetched).await.is_none() {
                return;
            }
        }
    }
}

/// A failure is only logged: a create that names the image tries again.
async fn fetch(images: &Images, name: &str, progress: ProgressFn) {
    let was_here = images.get(name).is_some();
    match images.ensure(name, progress).await {
        Ok(image) => {
            // A pull logs it itself.
            if let Some(stand_in) = image.stand_in.as_ref().filter(|_| was_here) {
                tracing::warn!(image = name, "{stand_in}");
            }
        }
        // `custom`, until the operator names its source.
        Err(ImageError::NoSource { .. }) => {}
        Err(error) => tracing::error!(image = name, %error, "could not fetch an image"),
    }
}
