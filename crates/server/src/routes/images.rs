//! `GET /v1/images`: the images that are here, and how far those are that are being fetched. A fetch does not notice.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{ImageList, ImageView, Pagination, PullProgress, PullStage, Timestamp};
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use image::{Image, Progress, Stage};
use rules::{ImageListing, image_is_listed};

use super::view;
use crate::error::ApiError;
use crate::service::Service;

const NS_PER_MS: i128 = 1_000_000;

/// List images
///
/// Those that are on the server, of which a sandbox is made at once, and those that it is fetching, with how far it is; by name.
/// Images are the operator's and the same for every account. Where a create may name any image of a registry, one that is not in the
/// catalogue is shown only to who asks for its name.
#[utoipa::path(
    get, path = "/v1/images", operation_id = "listImages", tag = "Images",
    params(
        ("name" = Option<String>, Query, description = "Only the image of this name.", nullable = false, example = "ubuntu:24.04"),
        ("limit" = Option<u32>, Query, description = "Items a page; 20 where it is left out.", nullable = false, minimum = 1, maximum = 100),
        ("offset" = Option<u64>, Query, description = "Items to skip; none where it is left out.", nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64)
    ),
    responses(
        (status = 200, description = "A page.", body = ImageList),
        (status = 400, description = "A parameter has a value that is not allowed: `INVALID_REQUEST`.")
    )
)]
pub async fn list(State(service): State<Arc<Service>>, uri: Uri) -> Result<Response, ApiError> {
    let query = reader::images(uri.query())?;
    // Before what is here: an image that arrives in between is found twice, and not never.
    let pulls = service.images.pulls();
    let here = match &query.name {
        Some(name) => service.images.find(name).await?.into_iter().collect(),
        None => service.images.list().await?,
    };
    let mut found: BTreeMap<String, ImageView> = pulls.into_iter().map(pulling).collect();
    found.extend(here.iter().map(|image| ready(image)));
    let listing = query.name.as_deref().map_or(ImageListing::All, ImageListing::Named);
    let is_listed = |name: &str| {
        image_is_listed(listing, name, service.images.is_in_catalogue(name), service.allow_any_image)
    };
    found.retain(|name, _| is_listed(name));
    let pagination = Pagination::new(found.len() as u64, query.limit, query.offset);
    let skipped = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let data = found.into_values().skip(skipped).take(query.limit as usize).collect();
    view::ok(&ImageList { data, pagination })
}

fn ready(image: &Image) -> (String, ImageView) {
    let ms = u64::try_from(image.created_at.unix_timestamp_nanos() / NS_PER_MS).unwrap_or(0);
    let view = ImageView::ready(image.name.clone(), image.digest.clone(), image.size_bytes, Timestamp(ms));
    (image.name.clone(), view)
}

/// Its source, which may tell of this host or of the operator's mirrors, is for the log.
fn pulling(pull: Progress) -> (String, ImageView) {
    let stage = match pull.stage {
        Stage::Resolving => PullStage::Resolving,
        Stage::Fetching => PullStage::Fetching,
        Stage::Building => PullStage::Building,
        Stage::Storing => PullStage::Storing,
    };
    let (done_bytes, total_bytes) = (pull.done_bytes, pull.total_bytes);
    let view = ImageView::pulling(pull.image.clone(), PullProgress { stage, done_bytes, total_bytes });
    (pull.image, view)
}
