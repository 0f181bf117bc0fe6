//! Room for images that accounts name: images that were not used for long are removed, and a pull is refused if that is not enough.

use admission::error::{ApiError, RefusalCode};
use rules::ReachedLimit;

use super::layers_in_use::layers_in_use;
use crate::Service;
use crate::error::{OperationKind, of_engine, of_image};

const COUNTS: &str = "bytes of all images on this host";
const KEY: &str = "images.max_bytes";
/// Until a sandbox with a large image ends.
const ROOM_RETRY_S: u64 = 60;

/// Makes room for one more image. Its size is not known yet, so the limit can be exceeded while images are pulled.
pub async fn make_room(service: &Service) -> Result<(), ApiError> {
    if let Some(max_bytes) = service.image_access.max_bytes()
        && service.images.stored_bytes() >= max_bytes
    {
        remove_unused(service, max_bytes - 1).await?;
        if service.images.stored_bytes() >= max_bytes {
            let limit = ReachedLimit::set_by_operator(max_bytes, COUNTS, KEY);
            let why = match service.images.pulls().is_empty() {
                true => "this host has no room for another image, and all images are in use",
                // They may use layers of any image.
                false => "this host has no room for another image until the pulls in progress have ended",
            };
            return Err(ApiError::refused(RefusalCode::ResourceExhausted, why, limit, ROOM_RETRY_S));
        }
    }
    let free = service.images.free_bytes().await.map_err(of_image)?;
    service.engine.check_free_disk(free).map_err(|error| of_engine(error, None, OperationKind::Other))
}

/// Removes images beyond the limit after a pull. The next pull tries again.
pub async fn remove_excess(service: &Service) {
    let Some(max_bytes) = service.image_access.max_bytes() else { return };
    if let Err(error) = remove_unused(service, max_bytes).await {
        let cause = error.cause_text().unwrap_or_else(|| error.message.clone());
        tracing::error!(cause, "cannot remove images that were not used for long");
    }
}

async fn remove_unused(service: &Service, max_bytes: u64) -> Result<(), ApiError> {
    let Some(eviction) = service.images.begin_eviction(max_bytes).await.map_err(of_image)? else {
        return Ok(());
    };
    // Read after the beginning: see `Images::begin_eviction`.
    let in_use = layers_in_use(&*service.store).await?;
    eviction.finish(&in_use).await.map_err(of_image)?;
    Ok(())
}
