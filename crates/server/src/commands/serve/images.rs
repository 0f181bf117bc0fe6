//! `--pull-images`: pulls the images of the catalogue that are missing on this host, for a first try of the service.
//!
//! The image of the example command is pulled before the daemon serves, the others while it serves, so that a new machine
//! answers its first request earlier. A create that names an image whose pull is in progress waits for it.

use std::sync::Arc;

use image::{ImageError, Images, ProgressFn};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::welcome::EXAMPLE_IMAGE;
use crate::progress;
use crate::service::Service;

/// Pulls the image of the example command if the catalogue has it.
pub async fn fetch_example(images: &Images) {
    if images.is_in_catalogue(EXAMPLE_IMAGE) {
        fetch(images, EXAMPLE_IMAGE, progress::reporter()).await;
        progress::finish();
    }
}

/// Starts to pull the others one by one if requested. The task ends when all are on this host or the daemon stops.
pub fn start_others(is_requested: bool, service: &Service) -> JoinHandle<()> {
    let (images, stopping) = (service.images.clone(), service.stopping.clone());
    tokio::spawn(async move {
        if is_requested {
            fetch_others(&images, &stopping).await;
        }
    })
}

async fn fetch_others(images: &Images, stopping: &CancellationToken) {
    for name in images.names() {
        if name != EXAMPLE_IMAGE {
            // Progress lines would mix with the log.
            let fetched = fetch(images, &name, Arc::new(|_| ()));
            if stopping.run_until_cancelled(fetched).await.is_none() {
                return;
            }
        }
    }
}

/// A failure is only logged: a create with the image retries the pull.
async fn fetch(images: &Images, name: &str, progress: ProgressFn) {
    let was_here = images.get(name).is_some();
    match images.ensure(name, progress).await {
        Ok(image) => {
            // If the image was pulled now, the pull has logged this.
            if let Some(stand_in) = image.stand_in.as_ref().filter(|_| was_here) {
                tracing::warn!(image = name, "{stand_in}");
            }
        }
        // For example `custom`, until the operator configures its source.
        Err(ImageError::NoSource { .. }) => {}
        Err(error) => tracing::error!(image = name, %error, "cannot pull the image"),
    }
}
