//! `GET /v1/images`: the images on this host, and the progress of pulls.

use std::collections::BTreeMap;
use std::sync::Arc;

use admission::endpoint::parameter::text;
use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, ImageList, ImageView, Pagination, PullProgress, PullStage, Timestamp};
use axum::http::StatusCode;
use image::{Image, NamedBy, PullReport, PullStep};
use rules::{ImageListing, ImageOwner, ImageReference, image_is_listed};
use service::Service;
use service::error::of_image;

use crate::endpoint::{Call, Endpoint};

const NS_PER_MS: i128 = 1_000_000;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/images", READ)
        .describe(
            "listImages",
            Tag::Images,
            "List images",
            "Lists the images on the service's host and the pulls in progress, sorted by name. All accounts see \
             the images of the operator. An image of a registry that the operator allows accounts to name is listed for \
             accounts that have requested it, and for others that may name it if `name` is that image, in any form.",
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
    let Call { service, caller, parts, .. } = call;
    let query = reader::images(parts.uri.query())?;
    // Read before the stored images, so that an image whose pull ends in between is not missed.
    let pulls = service.images.pulls();
    let here = match &query.name {
        Some(name) => named(&service, name).await?,
        None => service.images.list().await.map_err(of_image)?,
    };
    let listing = query.name.as_deref().map_or(ImageListing::All, ImageListing::Named);
    let views = pulls.into_iter().map(pulling).chain(here.iter().map(|image| ready(image)));
    let mut found: BTreeMap<String, ImageView> = BTreeMap::new();
    for (name, view) in views {
        let owner = owner(&service, &caller.account, &name).await;
        if owner.is_some_and(|owner| image_is_listed(listing, &name, owner)) {
            found.insert(name, view);
        }
    }
    let pagination = Pagination::new(found.len() as u64, query.limit, query.offset);
    let skipped = usize::try_from(query.offset).unwrap_or(usize::MAX);
    let data = found.into_values().skip(skipped).take(query.limit as usize).collect();
    Json::ok(&ImageList { data, pagination })
}

/// The images on this host that a name in any form stands for.
async fn named(service: &Service, name: &str) -> Result<Vec<Arc<Image>>, ApiError> {
    let reference = ImageReference::parse(name);
    let complete = reference.as_ref().map(ImageReference::to_string);
    let of_catalogue = reference.as_ref().and_then(|reference| service.images.catalogue_name(reference));
    let mut names = vec![name.to_owned()];
    names.extend(complete);
    names.extend(of_catalogue.map(str::to_owned));
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        found.extend(service.images.find(&name).await.map_err(of_image)?);
    }
    Ok(found)
}

/// Whose request has brought the image, or its pull, to this host. `None` if the account may not use it.
async fn owner(service: &Service, account: &str, name: &str) -> Option<ImageOwner> {
    let image = service.images.get(name);
    let is_operators = image.is_some_and(|image| image.named_by == NamedBy::Operator);
    if is_operators || service.images.is_in_catalogue(name) {
        return Some(ImageOwner::Operator);
    }
    let reference = ImageReference::parse(name)?;
    service.image_access.check(account, &reference).await.ok()?;
    let is_own = service.image_access.has_requested(account, name);
    Some(if is_own { ImageOwner::Caller } else { ImageOwner::Others })
}

fn ready(image: &Image) -> (String, ImageView) {
    let ms = u64::try_from(image.created_at.unix_timestamp_nanos() / NS_PER_MS).unwrap_or(0);
    let view = ImageView::ready(image.name.clone(), image.digest.clone(), image.size_bytes, Timestamp(ms));
    (image.name.clone(), ImageView { stand_in: image.stand_in.clone(), ..view })
}

/// Without the source, which may reveal the operator's mirrors or paths of this host.
fn pulling(pull: PullReport) -> (String, ImageView) {
    let stage = match pull.stage {
        PullStep::Resolving => PullStage::Resolving,
        PullStep::Fetching => PullStage::Fetching,
        PullStep::Building => PullStage::Building,
        PullStep::Storing => PullStage::Storing,
    };
    let (done_bytes, total_bytes) = (pull.done_bytes, pull.total_bytes);
    let view = ImageView::pulling(pull.image.clone(), PullProgress { stage, done_bytes, total_bytes });
    (pull.image, view)
}
