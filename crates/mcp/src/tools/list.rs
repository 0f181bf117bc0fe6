//! `list_sandboxes`.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::SandboxState;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::{Call, json_result, parse, within};
use crate::failure::Failure;

const PAGE: u64 = 50;
const LARGEST_PAGE: u64 = 100;

pub fn tool() -> Tool {
    let tool = schema::tool(
        "list_sandboxes",
        "List sandboxes",
        "List the sandboxes of the account in one state, newest first. A paused sandbox resumes when a tool uses it; a terminated one is gone.",
        Effect::Reads,
        schema::input(
            json!({
                "state": {"type": "string", "enum": ["running", "paused", "terminated"], "description": "The state. Default: running."},
                "offset": schema::integer(0, 1_000_000, "Sandboxes to skip: nextOffset of the previous result. Default: 0."),
                "limit": schema::integer(1, LARGEST_PAGE, "Most sandboxes in the result. Default: 50.")
            }),
            &[],
        ),
        schema::output(
            json!({
                "sandboxes": {"type": "array", "items": {"type": "object", "properties": {
                    "sandboxId": schema::text("The id of the sandbox."),
                    "state": schema::text("Its state."),
                    "image": schema::text("Its image."),
                    "createdAt": schema::text("When it was created."),
                    "isOfSession": {"type": "boolean", "description": "Whether calls without sandboxId use it."}
                }, "required": ["sandboxId", "state", "image", "createdAt", "isOfSession"]}},
                "total": {"type": "integer", "description": "Number of sandboxes that match."},
                "nextOffset": {"type": "integer", "description": "If there are more: the offset of the next call."}
            }),
            &["sandboxes", "total"],
        ),
    );
    schema::idempotent(schema::closed_world(tool))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    state: Option<SandboxState>,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    sandboxes: Vec<Item>,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    sandbox_id: String,
    state: SandboxState,
    image: String,
    created_at: sandboxd_client::Timestamp,
    is_of_session: bool,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let limit = within("limit", arguments.limit.unwrap_or(PAGE), 1, LARGEST_PAGE)?;
    let list = call.client.list().page_size(u32::try_from(limit).unwrap_or(u32::MAX));
    let list = list.state(arguments.state.unwrap_or(SandboxState::Running));
    let page = list.page(arguments.offset).await?;
    let unnamed = match &call.session {
        Some(session) => session.created().await,
        None => None,
    };
    let end = arguments.offset.saturating_add(page.data.len() as u64);
    let item = |item: sandboxd_client::SandboxItem| Item {
        is_of_session: unnamed.as_ref().is_some_and(|unnamed| *unnamed.id() == item.id),
        sandbox_id: item.id.to_string(),
        state: item.state,
        image: item.image,
        created_at: item.created_at,
    };
    let listed = Listed {
        sandboxes: page.data.into_iter().map(item).collect(),
        total: page.pagination.total,
        next_offset: page.pagination.has_more.then_some(end),
    };
    json_result(None, &listed)
}
