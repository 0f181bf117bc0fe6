//! `GET /v1/events` and `GET /v1/sandboxes/{id}/events`: what happened, as a page or as a stream that goes on.
//!
//! Straight from the store, as lists of sandboxes are. Whether a page or a stream is chosen as with execute. A terminated
//! sandbox answers 404 here as everywhere; its events are among those of its account for as long as they are kept.

use std::sync::Arc;

use api::{EventId, EventKind, EventKinds, EventList, Moment, Pagination, RunId, SandboxId};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use rules::EventQuery;
use store::{EventFilter, EventOrder, EventPage, Topic};

use super::follow::{self, Begin};
use super::{read, view};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::layers::RequestId;
use crate::service::Service;

/// Events of the account
///
/// Of all its sandboxes, terminated ones too for as long as they are kept. Oldest first, in the order of their ids, which is
/// the order in which they could be seen: after the last id of a page nothing is missing. With `Accept: text/event-stream`
/// a stream that begins with what follows `Last-Event-ID` and goes on as events happen; without a place to begin it begins now.
/// Each of its messages has the event's `id`, its type as `event` and the `RuntimeEvent` as `data`.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "listEvents", tag = "Events",
    params(
        ("sandboxId" = inline(Option<SandboxId>), Query, description = "Only those of this sandbox; it may be terminated.", nullable = false),
        ("type" = Option<Vec<EventKinds>>, Query, nullable = false, description = "Only those of this type, or of all of a sort such as `exec.*`. May be given several times."),
        ("runId" = inline(Option<RunId>), Query, description = "Only those of this run.", nullable = false),
        ("since" = inline(Option<Moment>), Query, description = "Only those from this time on.", nullable = false),
        ("until" = inline(Option<Moment>), Query, description = "Only those before this time.", nullable = false),
        ("after" = inline(Option<EventId>), Query, description = "Only those after this one. The cheap way from page to page.", nullable = false),
        ("before" = inline(Option<EventId>), Query, description = "Only those before this one.", nullable = false),
        ("order" = inline(Option<Order>), Query, description = "`asc`, which is the default, for oldest first; `desc` for newest first."),
        ("limit" = Option<u32>, Query, description = "Items a page; 20 where it is left out.", nullable = false, minimum = 1, maximum = 100),
        ("offset" = Option<u64>, Query, description = "Items to skip; none where it is left out.", nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64),
        ("lastEventId" = inline(Option<EventId>), Query, description = "For streams: as the header `Last-Event-ID`, which goes over it.", nullable = false),
        ("Last-Event-ID" = Option<String>, Header, nullable = false, description = "For streams: the last event that was seen.", pattern = r"^ev_[0-9]{16}$", example = "ev_0000000000000042")
    ),
    responses(
        (status = 200, description = "A page, or the stream. `total` counts all that fit the filters, wherever the page begins.",
            content((EventList = "application/json"), (String = "text/event-stream", example = "id: ev_0000000000000042\nevent: sandbox.paused\ndata: {\"id\":\"ev_0000000000000042\",\"timestamp\":\"2026-01-05T10:33:40.020Z\",\"type\":\"sandbox.paused\",\"sandboxId\":\"sb_4h1v8x2k9qz7m3t5w0ry\",\"runId\":\"\",\"data\":{\"runtimeDurationMs\":152602,\"reason\":\"request\"}}\n\n"))),
        (status = 400, description = "A parameter or the header has a value that is not allowed: `INVALID_REQUEST`.")
    )
)]
pub async fn of_account(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let query = reader::events(request.uri().query())?;
    let sandbox = query.sandbox.clone();
    answer(service, caller, request_id, request.headers(), query, sandbox, None).await
}

/// Events of a sandbox
///
/// As `GET /v1/events`, of one sandbox that is not terminated. A stream ends when its sandbox was terminated and all is said.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/events", operation_id = "listSandboxEvents", tag = "Events",
    params(
        ("id" = SandboxId, Path, description = "Id of the sandbox."),
        ("type" = Option<Vec<EventKinds>>, Query, nullable = false, description = "Only those of this type, or of all of a sort such as `exec.*`. May be given several times."),
        ("runId" = inline(Option<RunId>), Query, description = "Only those of this run.", nullable = false),
        ("since" = inline(Option<Moment>), Query, description = "Only those from this time on.", nullable = false),
        ("until" = inline(Option<Moment>), Query, description = "Only those before this time.", nullable = false),
        ("after" = inline(Option<EventId>), Query, description = "Only those after this one. The cheap way from page to page.", nullable = false),
        ("before" = inline(Option<EventId>), Query, description = "Only those before this one.", nullable = false),
        ("order" = inline(Option<Order>), Query, description = "`asc`, which is the default, for oldest first; `desc` for newest first."),
        ("limit" = Option<u32>, Query, description = "Items a page; 20 where it is left out.", nullable = false, minimum = 1, maximum = 100),
        ("offset" = Option<u64>, Query, description = "Items to skip; none where it is left out.", nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64),
        ("lastEventId" = inline(Option<EventId>), Query, description = "For streams: as the header `Last-Event-ID`, which goes over it.", nullable = false),
        ("Last-Event-ID" = Option<String>, Header, nullable = false, description = "For streams: the last event that was seen.", pattern = r"^ev_[0-9]{16}$", example = "ev_0000000000000042")
    ),
    responses(
        (status = 200, description = "A page, or the stream.",
            content((EventList = "application/json"), (String = "text/event-stream"))),
        (status = 400, description = "A parameter or the header has a value that is not allowed: `INVALID_REQUEST`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`.")
    )
)]
pub async fn of_sandbox(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(request.uri())?;
    let found = service.engine.sandbox(&caller.account, &id).status().await;
    found.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    let query = reader::events(request.uri().query())?;
    answer(service, caller, request_id, request.headers(), query, Some(id.clone()), Some(id)).await
}

async fn answer(
    service: Arc<Service>,
    caller: Caller,
    request_id: RequestId,
    headers: &HeaderMap,
    query: EventQuery,
    sandbox: Option<SandboxId>,
    ends_with: Option<SandboxId>,
) -> Result<Response, ApiError> {
    let filter = EventFilter {
        account: caller.account.to_string(),
        sandbox,
        kinds: query.kinds.iter().map(EventKind::to_string).collect(),
        run: query.run.map(|run| run.to_string()),
        since: query.since,
        until: query.until,
    };
    // Looked at in either case: what is no id is a mistake.
    let last_seen = follow::last_seen(headers)?;
    if reader::wants_stream(read::values(headers, header::ACCEPT)) {
        let topic = match &ends_with {
            Some(id) => Topic::Sandbox(id.clone()),
            None => Topic::Account(filter.account.clone()),
        };
        let from = last_seen.or(query.last).or(query.after);
        let begin = Begin { filter, topic, ends_with, from, key_id: caller.key_id, request_id };
        return follow::response(service, begin).await;
    }
    let page = EventPage {
        after: query.after.map(|id| id.0),
        before: query.before.map(|id| id.0),
        offset: query.offset,
        limit: query.limit,
        order: if query.newest_first { EventOrder::NewestFirst } else { EventOrder::OldestFirst },
    };
    let listing = service.store.list_events(&filter, page).await?;
    let data = listing.items.into_iter().map(view::event).collect::<Result<_, _>>()?;
    let (limit, offset) = (query.limit, query.offset);
    let pagination = Pagination { total: listing.total, limit, offset, has_more: listing.more };
    view::ok(&EventList { data, pagination })
}

/// How a page is ordered.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes a parameter; `rules` reads it")]
enum Order {
    Asc,
    Desc,
}
