//! `GET /v1/sandboxes`: a page of an account's sandboxes, read from the store: a list shows every change whose response was sent
//! before.

use api::{ErrorCode, Pagination, SandboxList};
use axum::http::StatusCode;
use store::{Filter, Page};

use super::view;
use crate::endpoint::parameter::{inline, text};
use crate::endpoint::{Call, Endpoint, Json, Parameter, READ, Tag};
use crate::error::ApiError;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes", READ)
        .describe(
            "listSandboxes",
            Tag::Sandboxes,
            "List sandboxes",
            "Lists sandboxes, newest first. Without `state`, running, paused and terminated sandboxes are \
             included, terminated ones until the end of the retention time. Unknown parameters are ignored; \
             a repeated one is an error.",
        )
        .parameters([
            Parameter::query("state", "Only sandboxes in this state.", inline::<StateFilter>),
            Parameter::query("image", "Only sandboxes with this image.", text).example("ubuntu:24.04"),
            Parameter::LIMIT,
            Parameter::OFFSET,
            Parameter::query(
                "metadata.userId",
                "Only sandboxes with this value for the metadata key `userId`. `metadata.<key>` works \
                 for any key; up to 20 keys can be combined.",
                text,
            ),
        ])
        .returns::<SandboxList>(StatusCode::OK, "A page.")
        .errors([(ErrorCode::InvalidRequest, "A parameter has an invalid value")])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<SandboxList>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let query = reader::list(parts.uri.query())?;
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
    Json::ok(&SandboxList { data, pagination })
}

/// The states to filter by. `creating` is missing: lists do not show sandboxes in this state.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes a parameter; `rules` reads it")]
enum StateFilter {
    Running,
    Paused,
    Terminated,
}
