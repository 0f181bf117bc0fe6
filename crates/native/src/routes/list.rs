//! `GET /v1/sandboxes`: a page of an account's sandboxes, read from the store: a list shows every change whose response was sent
//! before.

use admission::endpoint::parameter::{inline, text};
use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, Pagination, SandboxItem, SandboxList};
use axum::http::StatusCode;
use service::Service;
use store::{EndedSandbox, Filter, PageRange, SandboxSummary};

use super::view;
use crate::endpoint::{Call, Endpoint};

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
            Parameter::flag(
                "details",
                "`true` for items that also have `name`, `metadata`, `isolation`, `hibernatedAt` and `expiresAt`; \
                 terminated ones have `name`, `metadata` and `reason`.",
            ),
        ])
        .returns::<SandboxList>(StatusCode::OK, "A page.")
        .errors([(ErrorCode::InvalidRequest, "A parameter has an invalid value")])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<SandboxList>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let (query, has_details) = (reader::list(parts.uri.query())?, reader::details(parts.uri.query())?);
    let filter = Filter {
        account: caller.account.to_string(),
        state: query.state,
        image: query.image,
        metadata: query.metadata,
    };
    let page = PageRange { limit: query.limit, offset: query.offset };
    let listing = service.store.list(&filter, page).await?;
    let data = if has_details {
        detailed_items(&service, &caller.account, listing.items).await
    } else {
        listing.items.into_iter().map(view::item).collect()
    };
    let pagination = Pagination::new(listing.total, query.limit, query.offset);
    Json::ok(&SandboxList { data, pagination })
}

/// The items with the details of sandboxes that are not terminated, whose records are in memory, and with what summaries have of the end
/// of the others.
async fn detailed_items(
    service: &Service,
    account: &str,
    summaries: Vec<SandboxSummary>,
) -> Vec<SandboxItem> {
    let mut detailed = Vec::with_capacity(summaries.len());
    for mut summary in summaries {
        let ended = summary.ended.take();
        let item = view::item(summary);
        // A sandbox may have terminated since the page was read.
        let sandbox = match item.terminated_at {
            None => service.engine.sandbox(account, &item.id).status().await.ok(),
            Some(_) => None,
        };
        let sandbox = sandbox.map(|status| view::sandbox(&status.record));
        detailed.push(match (sandbox, ended) {
            (Some(sandbox), _) => item.with_details(sandbox),
            (None, Some(EndedSandbox { metadata, reason })) => item.with_end(metadata, reason),
            (None, None) => item,
        });
    }
    detailed
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
