//! Having every image of the catalogue on this host before the first request, for whoever wants to try the service.

use image::Images;

use crate::progress;

/// Fetches, one after the other, what is not here. One that cannot be had is said and passed over: a create that names it
/// tries again. What is here is not asked for anywhere.
pub async fn fetch_all(images: &Images) {
    for name in images.names() {
        let was_here = images.get(&name).is_some();
        let fetched = images.ensure(&name, progress::reporter()).await;
        progress::finish();
        match fetched {
            Ok(image) => {
                // What is fetched says it by itself.
                if let Some(stand_in) = image.stand_in.as_ref().filter(|_| was_here) {
                    tracing::warn!(image = name, "{stand_in}");
                }
            }
            // `custom` until the operator gives it one.
            Err(image::ImageError::NoSource { .. }) => {}
            Err(error) => tracing::error!(image = name, %error, "could not fetch an image"),
        }
    }
}
