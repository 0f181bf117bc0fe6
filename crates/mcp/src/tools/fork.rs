//! `fork_sandbox`.
//!
//! The session owns the forks of its sandboxes. Other forks end by their lifetime or by `terminate_sandbox`.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::Sandbox;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::{Call, json_result, parse, within};
use crate::failure::Failure;
use crate::session::{MARK, terminate_all};

const MOST_FORKS: u64 = 100;

pub fn tool() -> Tool {
    schema::tool(
        "fork_sandbox",
        "Fork a sandbox",
        "Create copies of a sandbox, with its files and its configuration, and return their ids for the sandboxId of other tools: for example to try several changes \
         from the same state. The sandbox runs on. Its exposed ports are not copied. Forks of the sandbox of this session are terminated with the session; other forks have the \
         timeoutSeconds of their sandbox. Terminate forks that are not needed with terminate_sandbox.",
        Effect::Adds,
        schema::input(
            json!({
                "count": schema::integer(1, MOST_FORKS, "Number of copies: all are created, or none. Default: 1."),
                "memory": schema::boolean("Continue copies of the running processes in the forks. Not every isolation can. Default: false, only files are copied."),
                "sandboxId": schema::sandbox_id()
            }),
            &[],
        ),
        schema::output(
            json!({
                "sandboxId": schema::text("The sandbox that was copied."),
                "forkIds": {"type": "array", "items": {"type": "string"}, "description": "The ids of the new sandboxes."},
                "endsWithSession": schema::boolean("Whether the new sandboxes are terminated with this session."),
                "timeoutSeconds": {"type": "integer", "description": "Running time after which each of them is terminated."}
            }),
            &["sandboxId", "forkIds", "endsWithSession"],
        ),
    )
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    count: Option<u64>,
    #[serde(default)]
    memory: bool,
    sandbox_id: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Forked {
    sandbox_id: String,
    fork_ids: Vec<String>,
    ends_with_session: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let Arguments { count, memory, sandbox_id } = parse(arguments)?;
    let count = within("count", count.unwrap_or(1), 1, MOST_FORKS)?;
    let target = call.target(sandbox_id.as_deref()).await?;
    let forks = match fork(&target.sandbox, count, memory).await {
        Ok(forks) => forks,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    if call.cancelled.is_cancelled() {
        // Nobody gets the ids.
        terminate_all(forks).await;
        return Err(Failure::cancelled());
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
    json_result(target.note, &forked)
}

async fn fork(sandbox: &Sandbox, count: u64, memory: bool) -> sandboxd_client::Result<Vec<Sandbox>> {
    let mut fork = sandbox.fork(u32::try_from(count).unwrap_or(u32::MAX)).memory(memory);
    // Tags of the request replace those of the sandbox. A copy of its mark would make each fork look like an unnamed sandbox.
    for (key, value) in sandbox.refresh().await?.metadata {
        fork = fork.metadata(key, value);
    }
    fork.metadata(MARK, "forked").await
}
