//! Finds the image of a create or of a build. An image that is not on this host is pulled; if that takes too long, the request gets
//! 503 and the pull continues.

use std::sync::Arc;
use std::time::Duration;

use api::SnapshotId;
use engine::{EngineError, Template};
use image::ImageError;

use crate::app;
use crate::error::{ApiError, Condition, RefusalCode};
use crate::service::Service;

const PULL_RETRY_S: u64 = 10;

/// An image of this host, or one that is pulled within `wait`.
pub async fn find_image(service: &Service, name: &str, wait: Duration) -> Result<Template, ApiError> {
    if let Some(image) = service.images.get(name) {
        return Ok(app::template(&image));
    }
    let pull = pull(service, name);
    match tokio::time::timeout(wait, pull).await {
        Ok(image) => {
            let image = image?;
            Ok(app::template(&image))
        }
        Err(_) => {
            let why = format!("image {} is being pulled", rules::quoted(name));
            let (code, condition) = (RefusalCode::ResourceExhausted, Condition::ImagePull);
            Err(ApiError::refused(code, why, condition, PULL_RETRY_S).with_detail("field", "image"))
        }
    }
}

/// Pulls the image that a snapshot of another host needs. False if that is not why the request failed, or only the id of another
/// snapshot is known. The source may have another image by now, so the request can fail again.
pub async fn pull_missing(service: &Service, error: &EngineError) -> Result<bool, ApiError> {
    match error {
        EngineError::OtherImage { image, .. } if !image.starts_with(SnapshotId::PREFIX) => {
            find_image(service, image, service.pull_timeout).await.map(|_| true)
        }
        _ => Ok(false),
    }
}

async fn pull(service: &Service, name: &str) -> Result<Arc<image::Image>, ImageError> {
    match service.images.ensure(name, Arc::new(|_| {})).await {
        Err(ImageError::UnknownName { .. }) if service.allow_any_image => {
            service.images.import_for_client(name, Arc::new(|_| {})).await
        }
        image => image,
    }
}
