//! The action `terminate` of `manage_sandboxes`.

use sandboxd_client::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolCall;
use super::reply::ToolReply;
use super::shared::SandboxReference;
use crate::failure::ToolFailure;

/// Which sandbox to terminate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TerminateSandbox {
    sandbox_id: Option<SandboxReference>,
}

/// What was terminated.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Terminated {
    /// The sandbox, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox_id: Option<String>,
    /// False if there was nothing to terminate.
    terminated: bool,
}

/// Terminates a sandbox. A second call has nothing to do.
pub async fn terminate(
    call: &ToolCall,
    arguments: TerminateSandbox,
) -> Result<ToolReply<Terminated>, ToolFailure> {
    let sandbox = match (&arguments.sandbox_id, &call.session) {
        (Some(id), _) => Some(call.client.find(id).await?),
        (None, Some(session)) => session.created().await,
        (None, None) => {
            return Err(ToolFailure::argument("sandboxId is missing: this connection has no session."));
        }
    };
    let Some(sandbox) = sandbox else {
        return Ok(ToolReply::json(None, Terminated { sandbox_id: None, terminated: false }));
    };
    let ended = sandbox.terminate().await;
    if let Some(session) = &call.session
        && ended.as_ref().map_or_else(|error| error.code() == Code::SandboxNotFound, |_| true)
    {
        session.forget(&sandbox).await;
    }
    ended?;
    Ok(ToolReply::json(None, Terminated { sandbox_id: Some(sandbox.id().to_string()), terminated: true }))
}
