//! `terminate_sandbox`.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::Code;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::{Call, json_result, parse};
use crate::failure::Failure;

pub fn tool() -> Tool {
    let tool = schema::tool(
        "terminate_sandbox",
        "Terminate a sandbox",
        "Terminate a sandbox: end its processes and delete its files. This cannot be undone. Without sandboxId it terminates the sandbox of this session; the next \
         call without sandboxId creates a new one.",
        Effect::Destroys,
        schema::input(json!({"sandboxId": schema::sandbox_id()}), &[]),
        schema::output(
            json!({
                "sandboxId": schema::text("The sandbox, if there was one."),
                "terminated": {"type": "boolean", "description": "False if there was nothing to terminate."}
            }),
            &["terminated"],
        ),
    );
    schema::idempotent(schema::closed_world(tool))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    sandbox_id: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Terminated {
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<String>,
    terminated: bool,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let arguments: Arguments = parse(arguments)?;
    let sandbox = match (&arguments.sandbox_id, &call.session) {
        (Some(id), _) => Some(call.client.find(id).await?),
        (None, Some(session)) => session.created().await,
        (None, None) => {
            return Err(Failure::argument("sandboxId is missing: this connection has no session."));
        }
    };
    let Some(sandbox) = sandbox else {
        return json_result(None, &Terminated { sandbox_id: None, terminated: false });
    };
    let ended = sandbox.terminate().await;
    if let Some(session) = &call.session
        && ended.as_ref().map_or_else(|error| error.code() == Code::SandboxNotFound, |_| true)
    {
        session.forget(&sandbox).await;
    }
    ended?;
    json_result(None, &Terminated { sandbox_id: Some(sandbox.id().to_string()), terminated: true })
}
