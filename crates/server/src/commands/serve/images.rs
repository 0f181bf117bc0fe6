//! `--pull-images`: pulls the images of the catalogue that are missing on this host, for a first try of the service.
//!
//! The image of the example command is pulled before the daemon serves, the others while it serves, so that a new machine
//! answers its first request earlier. A create that names an image whose pull is in progress waits for it. Large images that few
//! services need are left to the first create that names them, except for that of a create through the API of E2B.

use std::sync::Arc;

use image::{ImageError, Images, ProgressFn};
use service::Service;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::welcome::EXAMPLE_IMAGE;
use crate::progress;

/// Pulled after the others, because it takes minutes where it is built.
const LAST: &str = "code-interpreter";
/// Not pulled in advance.
const ON_DEMAND: [&str; 2] = ["desktop", "e2b-base"];

/// Pulls the image of the example command if the catalogue has it.
pub async fn fetch_example(images: &Images) {
    if images.is_in_catalogue(EXAMPLE_IMAGE) {
        progress::show(|report| fetch(images, EXAMPLE_IMAGE, report)).await;
    }
}

/// Starts to pull the others one by one if requested. `e2b_base` is the image of a create through the API of E2B, if that is served. The
/// task ends when all are on this host or the daemon stops.
pub fn start_others(is_requested: bool, e2b_base: Option<&str>, service: &Service) -> JoinHandle<()> {
    let (images, stopping) = (service.images.clone(), service.stopping.clone());
    let names = if is_requested { in_advance(images.names(), e2b_base) } else { Vec::new() };
    tokio::spawn(async move { fetch_others(&images, names, &stopping).await })
}

async fn fetch_others(images: &Images, names: Vec<String>, stopping: &CancellationToken) {
    for name in names {
        // Progress lines would mix with the log.
        let fetched = fetch(images, &name, Arc::new(|_| ()));
        if stopping.run_until_cancelled(fetched).await.is_none() {
            return;
        }
    }
}

/// The images of the catalogue that are pulled while the daemon serves. The first create through the API of E2B waits for `e2b_base`.
fn in_advance(catalogue: Vec<String>, e2b_base: Option<&str>) -> Vec<String> {
    let is_base = |name: &String| Some(name.as_str()) == e2b_base;
    let is_usual = |name: &String| !ON_DEMAND.contains(&name.as_str());
    let wanted =
        catalogue.into_iter().filter(|name| name != EXAMPLE_IMAGE && (is_base(name) || is_usual(name)));
    let mut names: Vec<String> = wanted.collect();
    names.sort_by_key(|name| (!is_base(name), name == LAST));
    names
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
    fn large_images_come_last_or_are_left_to_creates() {
        let catalogue = Catalogue::default_set();
        assert!(ON_DEMAND.iter().all(|name| catalogue.sources(name).is_some()));
        let names = || catalogue.names().map(str::to_owned).collect();
        let usual = ["custom", "node:22", "python:3.12", "code-interpreter"];
        assert_eq!(in_advance(names(), None), usual);
        assert_eq!(in_advance(names(), Some("mine")), usual);
        let with_base = ["e2b-base", "custom", "node:22", "python:3.12", "code-interpreter"];
        assert_eq!(in_advance(names(), Some("e2b-base")), with_base);
    }
}
