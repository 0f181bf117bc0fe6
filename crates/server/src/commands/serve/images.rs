//! `--pull-images`: pulls the images of the catalogue that are missing on this host, for a first try of the service.
//!
//! The image of the example command is pulled before the daemon serves, the others while it serves, so that a new machine
//! answers its first request earlier. A create that names an image whose pull is in progress waits for it. Large images that few
//! services need are left to the first create that names them.

use std::sync::Arc;

use image::{ImageError, Images, ProgressFn};
use service::Service;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::welcome::EXAMPLE_IMAGE;
use crate::progress;

/// Not pulled in advance.
const ON_DEMAND: [&str; 2] = ["desktop", "e2b-base"];

/// Pulls the image of the example command if the catalogue has it.
pub async fn fetch_example(images: &Images) {
    if images.is_in_catalogue(EXAMPLE_IMAGE) {
        progress::show(|report| fetch(images, EXAMPLE_IMAGE, report)).await;
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
        if is_pulled_in_advance(&name) {
            // Progress lines would mix with the log.
            let fetched = fetch(images, &name, Arc::new(|_| ()));
            if stopping.run_until_cancelled(fetched).await.is_none() {
                return;
            }
        }
    }
}

fn is_pulled_in_advance(name: &str) -> bool {
    name != EXAMPLE_IMAGE && !ON_DEMAND.contains(&name)
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

#[cfg(test)]
mod tests {
    use image::Catalogue;

    use super::*;

    #[test]
    fn large_images_are_left_to_creates() {
        let catalogue = Catalogue::default_set();
        assert!(ON_DEMAND.iter().all(|name| catalogue.sources(name).is_some()));
        let pulled: Vec<&str> = catalogue.names().filter(|name| is_pulled_in_advance(name)).collect();
        assert_eq!(pulled, ["code-interpreter", "custom", "node:22", "python:3.12"]);
    }
}
