//! `GET /v1/images`: the images on this host, and the progress of pulls.

use std::collections::BTreeMap;

use api::{ErrorCode, ImageList, ImageView, Pagination, PullProgress, PullStage, Timestamp};
use axum::http::StatusCode;
use image::{Image, Progress, Stage};
use rules::{ImageListing, image_is_listed};

use crate::endpoint::parameter::text;
use crate::endpoint::{Call, Endpoint, Json, Parameter, READ, Tag};
use crate::error::ApiError;

const NS_PER_MS: i128 = 1_000_000;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/images", READ)
        .describe(
            "listImages",
            Tag::Images,
            "List images",
            "Lists the images on the service's host and the pulls in progress, sorted by name. All accounts see \
             the same images. If the operator allows any registry image, an image outside the catalogue is \
             listed only if `name` is that image.",
        )
        .parameters([
            Parameter::query("name", "Only the image with this name.", text).example("ubuntu:24.04"),
            Parameter::LIMIT,
            Parameter::OFFSET,
        ])
        .returns::<ImageList>(StatusCode::OK, "A page.")
        .errors([(ErrorCode::InvalidRequest, "A parameter has an invalid value")])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<ImageList>, ApiError> {
    let Call { service, parts, .. } = call;
    let query = reader::images(parts.uri.query())?;
    // Read before the stored images, so that an image whose pull ends in between is not missed.
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
    Json::ok(&ImageList { data, pagination })
}

fn ready(image: &Image) -> (String, ImageView) {
    let ms = u64::try_from(image.created_at.unix_timestamp_nanos() / NS_PER_MS).unwrap_or(0);
    let view = ImageView::ready(image.name.clone(), image.digest.clone(), image.size_bytes, Timestamp(ms));
    (image.name.clone(), view)
}

/// Without the source, which may reveal the operator's mirrors or paths of this host.
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
