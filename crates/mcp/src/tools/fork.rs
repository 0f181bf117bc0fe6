//! The action `fork` of `manage_sandboxes`.
//!
//! The session owns the forks of its sandboxes. Other forks end by their lifetime or by the action `terminate`.

use sandboxd_client::Sandbox;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reply::ToolReply;
use super::shared::SandboxReference;
use super::{ToolCall, within};
use crate::failure::ToolFailure;
use crate::session::{MARK, terminate_all};

const MOST_FORKS: u64 = 100;

/// What to copy, and how often.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkSandbox {
    /// Number of copies: all are created, or none. Default: 1.
    #[schemars(range(min = 1, max = MOST_FORKS))]
    count: Option<u64>,
    /// Continue copies of the running processes in the forks. Not every isolation can. Default: false, only files are copied.
    #[serde(default)]
    memory: bool,
    sandbox_id: Option<SandboxReference>,
}

/// The forks of a sandbox.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forked {
    /// The sandbox that was copied.
    sandbox_id: String,
    /// The ids of the new sandboxes.
    fork_ids: Vec<String>,
    /// Whether the new sandboxes are terminated with this session.
    ends_with_session: bool,
    /// Running time after which each of them is terminated.
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
}

/// Forks a sandbox.
pub async fn fork(call: &ToolCall, arguments: ForkSandbox) -> Result<ToolReply<Forked>, ToolFailure> {
    let ForkSandbox { count, memory, sandbox_id } = arguments;
    let count = within("count", count.unwrap_or(1), 1, MOST_FORKS)?;
    let target = call.target(sandbox_id.as_deref()).await?;
    let forks = match copies(&target.sandbox, count, memory).await {
        Ok(forks) => forks,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    if call.cancelled.is_cancelled() {
        // Nobody gets the ids.
        terminate_all(forks).await;
        return Err(ToolFailure::cancelled());
    }
    let mut ends_with_session = false;
    if let Some(session) = &call.session
        && session.owns(&target.sandbox).await
    {
        session.own(&forks).await;
        ends_with_session = true;
    }
    let forked = Forked {
        sandbox_id: target.sandbox.id().to_string(),
        ends_with_session,
        timeout_seconds: forks.first().and_then(Sandbox::known).map(|view| view.timeout_ms / 1000),
        fork_ids: forks.iter().map(|fork| fork.id().to_string()).collect(),
    };
    Ok(ToolReply::json(target.note, forked))
}

async fn copies(sandbox: &Sandbox, count: u64, memory: bool) -> sandboxd_client::Result<Vec<Sandbox>> {
    let mut fork = sandbox.fork(u32::try_from(count).unwrap_or(u32::MAX)).memory(memory);
    // Tags of the request replace those of the sandbox. A copy of its mark would make each fork look like an unnamed sandbox.
    for (key, value) in sandbox.refresh().await?.metadata {
        fork = fork.metadata(key, value);
    }
    fork.metadata(MARK, "forked").await
}
