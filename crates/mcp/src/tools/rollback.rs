//! The action `rollback` of `manage_snapshots`.

use sandboxd_client::{Code, Error, Sandbox, SandboxState, SnapshotId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::reply::ToolReply;
use super::schema::id_pattern;
use super::{ToolCall, parse_id};
use crate::failure::ToolFailure;

/// The snapshot to return to.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rollback {
    /// The snapshot.
    #[schemars(length(max = 64), regex(pattern = id_pattern(SnapshotId::PREFIX)))]
    snapshot_id: String,
}

/// A sandbox that has returned to a snapshot.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolledBack {
    /// The sandbox. It has the same id as before.
    sandbox_id: String,
    /// The snapshot.
    snapshot_id: String,
    /// The state of the sandbox, such as running.
    #[schemars(with = "String")]
    state: SandboxState,
}

/// Returns the sandbox of a snapshot to that snapshot.
pub async fn rollback(call: &ToolCall, arguments: Rollback) -> Result<ToolReply<RolledBack>, ToolFailure> {
    let Rollback { snapshot_id } = arguments;
    let id: SnapshotId = parse_id("snapshotId", &snapshot_id)?;
    // A snapshot belongs to one sandbox, so the model need not name it.
    let snapshot = call.client.snapshot(id.as_str()).await?;
    let sandbox = call.client.sandbox(snapshot.sandbox_id.as_str())?;
    match sandbox.rollback(&snapshot_id).await {
        Ok(view) => {
            let sandbox_id = sandbox.id().to_string();
            Ok(ToolReply::json(None, RolledBack { sandbox_id, snapshot_id, state: view.state }))
        }
        Err(error) => Err(failed(call, &sandbox, error).await),
    }
}

/// As [`ToolCall::failed`], with advice for a sandbox that has ended: its snapshot still has the files.
async fn failed(call: &ToolCall, sandbox: &Sandbox, error: Error) -> ToolFailure {
    if error.code() != Code::SandboxNotFound {
        return call.failed(sandbox, error).await;
    }
    if let Some(session) = &call.session {
        session.forget(sandbox).await;
    }
    ToolFailure::new(
        format!("The sandbox {} of this snapshot has ended.", sandbox.id()),
        "Call create_sandbox with the snapshotId as image to get a new sandbox with its files.",
    )
}
