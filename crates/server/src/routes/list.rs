//! `GET /v1/sandboxes`: a page of an account's sandboxes, straight from the store: a list that begins after a change was
//! answered shows it.

use std::sync::Arc;

use api::{Pagination, SandboxList};
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use store::{Filter, Page};

use super::view;
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::service::Service;

/// List sandboxes
///
/// Newest first. Without `state` those of every state are listed, terminated ones too for as long as the operator keeps them.
/// Parameters that are not known are ignored; one that is given twice is an error.
#[utoipa::path(
    get, path = "/v1/sandboxes", operation_id = "listSandboxes", tag = "Sandboxes",
    params(
        ("state" = inline(Option<StateFilter>), Query, description = "Only those in this state."),
        ("image" = Option<String>, Query, description = "Only those of this image.", nullable = false, example = "ubuntu:24.04"),
        ("limit" = Option<u32>, Query, description = "Items a page; 20 where it is left out.", nullable = false, minimum = 1, maximum = 100),
        ("offset" = Option<u64>, Query, description = "Items to skip; none where it is left out.", nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64),
        ("metadata.userId" = Option<String>, Query, nullable = false,
            description = "Only those with this value under the metadata key `userId`. `metadata.<key>` works with any key, and with up to 20 of them at once.")
    ),
    responses(
        (status = 200, description = "A page.", body = SandboxList),
        (status = 400, description = "A parameter has a value that is not allowed: `INVALID_REQUEST`.")
    )
)]
pub async fn list(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let query = reader::list(uri.query())?;
    let filter = Filter {
        account: caller.account.to_string(),
        state: query.state,
        image: query.image,
        metadata: query.metadata,
    };
    let page = Page { limit: query.limit, offset: query.offset };
    let listing = service.store.list(&filter, page).await?;
    let data = listing.items.into_iter().map(view::item).collect();
    let pagination = Pagination::new(listing.total, query.limit, query.offset);
    view::ok(&SandboxList { data, pagination })
}

/// The states that a list can be filtered by; nobody sees a sandbox in `creating`.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes a parameter; `rules` reads it")]
enum StateFilter {
    Running,
    Paused,
    Terminated,
}
