//! `list_sandboxes`.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::SandboxState;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::{Call, json_result, page, parse};
use crate::failure::Failure;

pub fn tool() -> Tool {
    let tool = schema::tool(
        "list_sandboxes",
        "List sandboxes",
        "List the sandboxes of the account in one state, newest first. A paused sandbox resumes when a tool uses it; a terminated one is gone.",
        Effect::Reads,
        schema::input(
            json!({
                "state": {"type": "string", "enum": ["running", "paused", "terminated"], "description": "The state. Default: running."},
                "offset": page::offset("Sandboxes"),
                "limit": page::limit("sandboxes")
            }),
            &[],
        ),
        page::output(
            "sandboxes",
            &json!({"type": "object", "properties": {
                    "sandboxId": schema::text("The id of the sandbox."),
                    "name": schema::text("Its name, if it has one."),
                    "state": schema::text("Its state."),
                    "image": schema::text("Its image."),
                    "createdAt": schema::text("When it was created."),
                    "isOfSession": {"type": "boolean", "description": "Whether calls without sandboxId use it."}
                }, "required": ["sandboxId", "state", "image", "createdAt", "isOfSession"]}),
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
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    state: SandboxState,
    image: String,
    created_at: sandboxd_client::Timestamp,
    is_of_session: bool,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let size = page::size(arguments.limit)?;
    let list = call.client.list().details().page_size(size);
    let list = list.state(arguments.state.unwrap_or(SandboxState::Running));
    let found = list.page(arguments.offset).await?;
    let unnamed = match &call.session {
        Some(session) => session.created().await,
        None => None,
    };
    let next_offset = page::next_offset(&found.pagination, arguments.offset, found.data.len());
    let item = |item: sandboxd_client::SandboxItem| Item {
        is_of_session: unnamed.as_ref().is_some_and(|unnamed| *unnamed.id() == item.id),
        sandbox_id: item.id.to_string(),
        name: item.name,
        state: item.state,
        image: item.image,
        created_at: item.created_at,
    };
    let listed = Listed {
        sandboxes: found.data.into_iter().map(item).collect(),
        total: found.pagination.total,
        next_offset,
    };
    json_result(None, &listed)
}
