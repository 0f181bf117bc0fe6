//! `GET /v1/events` and `GET /v1/sandboxes/{id}/events`: events as a page or as a stream.
//!
//! Reads from the store. `Accept` selects the stream, as for execute. A terminated sandbox gets 404; its events are listed under
//! its account within the retention time.

use std::sync::Arc;

use admission::endpoint::parameter::{inline, last_event_id, list_of};
use admission::endpoint::{Content, INSPECT, Parameter, READ, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use admission::request_id::RequestId;
use api::{ErrorCode, EventId, EventKinds, EventList, Moment, Pagination, RunId, SandboxId};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use rules::EventQuery;
use serde_json::json;
use service::Service;
use service::error::OperationKind;
use store::{EventFilter, EventOrder, EventPage, Topic};

use super::follow::{self, StreamStart};
use super::requested_sandbox::RequestedSandbox;
use super::{read, view};
use crate::endpoint::{Call, Endpoint};

/// Filters and paging of both lists.
const FILTERS: [Parameter; 11] = [
    Parameter::query(
        "type",
        "Only events of this type, or of a group such as `exec.*`. May be repeated.",
        list_of::<EventKinds>,
    ),
    Parameter::query("runId", "Only events of this run.", inline::<RunId>),
    Parameter::query("since", "Only events at or after this time.", inline::<Moment>),
    Parameter::query("until", "Only events before this time.", inline::<Moment>),
    Parameter::query(
        "after",
        "Only events with a greater id. Use this to page: the cost is the same for every page.",
        inline::<EventId>,
    ),
    Parameter::query("before", "Only events with a smaller id.", inline::<EventId>),
    Parameter::query(
        "order",
        "`asc` (the default) for oldest first, `desc` for newest first.",
        inline::<Order>,
    ),
    Parameter::LIMIT,
    Parameter::OFFSET,
    Parameter::query(
        "lastEventId",
        "For streams: same as the header `Last-Event-ID`, which takes precedence.",
        inline::<EventId>,
    ),
    Parameter::header(
        "Last-Event-ID",
        "For streams: the id of the last event that the client received.",
        last_event_id,
    )
    .example("ev_0000000000000042"),
];

const STREAM_EXAMPLE: &str = "id: ev_0000000000000042\n\
    event: sandbox.paused\n\
    data: {\"id\":\"ev_0000000000000042\",\"timestamp\":\"2026-01-05T10:33:40.020Z\",\"type\":\"sandbox.paused\",\
    \"sandboxId\":\"sb_4h1v8x2k9qz7m3t5w0ry\",\"runId\":\"\",\"data\":{\"runtimeDurationMs\":152602,\
    \"reason\":\"request\"}}\n\n";

const BAD_PARAMETER: (ErrorCode, &str) =
    (ErrorCode::InvalidRequest, "A parameter or the header has an invalid value");

pub fn of_account_endpoint() -> Endpoint {
    Endpoint::get("/v1/events", READ)
        .describe(
            "listEvents",
            Tag::Events,
            "List events of the account",
            "Includes events of terminated sandboxes within the retention time. Events are ordered by id, \
             oldest first, and become visible in that order: an event that becomes visible later has a \
             greater id. With `Accept: text/event-stream` the response is a stream, which starts after \
             `Last-Event-ID`, or with the next event if that is absent. Each message has the event's `id`, \
             its type as `event` and a `RuntimeEvent` as `data`.",
        )
        .parameters([Parameter::query(
            "sandboxId",
            "Only events of this sandbox, which may be terminated.",
            inline::<SandboxId>,
        )])
        .parameters(FILTERS)
        .responds(
            StatusCode::OK,
            "A page, or the stream. `total` counts all events that match the filters.",
            [Content::json::<EventList>(), Content::events().example(json!(STREAM_EXAMPLE))],
        )
        .errors([BAD_PARAMETER])
        .handler(of_account)
}

async fn of_account(call: Call) -> Result<Response, ApiError> {
    let Call { service, caller, request_id, parts, .. } = call;
    let query = reader::events(parts.uri.query())?;
    let sandbox = query.sandbox.clone();
    answer(service, caller, request_id, &parts.headers, query, sandbox, None).await
}

pub fn of_sandbox_endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/events", INSPECT)
        .describe(
            "listSandboxEvents",
            Tag::Events,
            "List events of a sandbox",
            "Like `GET /v1/events`, for one sandbox that is not terminated. The stream ends after \
             the last event of a terminated sandbox.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .parameters(FILTERS)
        .responds(StatusCode::OK, "A page, or the stream.", [Content::json::<EventList>(), Content::events()])
        .errors([BAD_PARAMETER, (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated")])
        .handler(of_sandbox)
}

async fn of_sandbox(call: Call) -> Result<Response, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Other)?;
    sandbox.exists().await?;
    let Call { service, caller, request_id, parts, .. } = call;
    let id = sandbox.id;
    let query = reader::events(parts.uri.query())?;
    answer(service, caller, request_id, &parts.headers, query, Some(id.clone()), Some(id)).await
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
        kinds: query.kinds,
        run: query.run.map(|run| run.to_string()),
        since: query.since,
        until: query.until,
    };
    // Parsed for pages too: a malformed id is an error.
    let last_seen = follow::last_seen(headers)?;
    if reader::wants_stream(read::values(headers, header::ACCEPT)) {
        let topic = match &ends_with {
            Some(id) => Topic::Sandbox(id.clone()),
            None => Topic::Account(filter.account.clone()),
        };
        let from = last_seen.or(query.last).or(query.after);
        let start = StreamStart { filter, topic, ends_with, from, key_id: caller.key_id, request_id };
        return follow::response(service, start).await;
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

/// The order of a page.
#[derive(utoipa::ToSchema)]
#[schema(rename_all = "lowercase")]
#[expect(dead_code, reason = "describes a parameter; `rules` reads it")]
enum Order {
    Asc,
    Desc,
}
