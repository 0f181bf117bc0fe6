//! `rollback_sandbox`.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::{Code, Error, Sandbox, SandboxState, SnapshotId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::schema::{self, Effect};
use super::snapshots::snapshot_id;
use super::{Call, json_result, parse, parse_id};
use crate::failure::Failure;

pub fn tool() -> Tool {
    let tool = schema::tool(
        "rollback_sandbox",
        "Roll a sandbox back",
        "Return the sandbox of a snapshot to that snapshot: end its processes and replace all its files. Changes since the snapshot are lost; take another snapshot \
         first to keep them. To have both states, call create_sandbox with the snapshot as image instead.",
        Effect::Destroys,
        schema::input(json!({"snapshotId": snapshot_id()}), &["snapshotId"]),
        schema::output(
            json!({
                "sandboxId": schema::text("The sandbox. It has the same id as before."),
                "snapshotId": schema::text("The snapshot."),
                "state": schema::text("The state of the sandbox, such as running.")
            }),
            &["sandboxId", "snapshotId", "state"],
        ),
    );
    schema::closed_world(tool)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Arguments {
    snapshot_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct RolledBack {
    sandbox_id: String,
    snapshot_id: String,
    state: SandboxState,
}

pub async fn call(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let Arguments { snapshot_id } = parse(arguments)?;
    let id: SnapshotId = parse_id("snapshotId", &snapshot_id)?;
    // A snapshot belongs to one sandbox, so the model need not name it.
    let snapshot = call.client.snapshot(id.as_str()).await?;
    let sandbox = call.client.sandbox(snapshot.sandbox_id.as_str())?;
    match sandbox.rollback(&snapshot_id).await {
        Ok(view) => {
            let sandbox_id = sandbox.id().to_string();
            json_result(None, &RolledBack { sandbox_id, snapshot_id, state: view.state })
        }
        Err(error) => Err(failed(call, &sandbox, error).await),
    }
}

/// As [`Call::failed`], with advice for a sandbox that has ended: its snapshot still has the files.
async fn failed(call: &Call, sandbox: &Sandbox, error: Error) -> Failure {
    if error.code() != Code::SandboxNotFound {
        return call.failed(sandbox, error).await;
    }
    if let Some(session) = &call.session {
        session.forget(sandbox).await;
    }
    Failure::new(
        format!("The sandbox {} of this snapshot has ended.", sandbox.id()),
        "Call create_sandbox with the snapshotId as image to get a new sandbox with its files.",
    )
}
