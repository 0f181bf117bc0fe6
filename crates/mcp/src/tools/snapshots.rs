//! `manage_snapshots`.

use base::SetSome;
use sandboxd_client::{SnapshotId, SnapshotView, Snapshots, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::page::{self, Limit, Offset};
use super::reply::ToolReply;
use super::rollback::{self, Rollback, RolledBack};
use super::schema::{Effect, id_pattern};
use super::shared::SandboxReference;
use super::{Declared, ToolCall, parse_id};
use crate::failure::ToolFailure;
use crate::session::MARK;

const LONGEST_NAME: usize = 128;

/// Store the state of a sandbox, list the snapshots of the account, return a sandbox to one, or delete one. To start new sandboxes from a
/// snapshot, pass its snapshotId as image to create_sandbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum ManageSnapshots {
    /// Store a copy of all files of a sandbox, while it runs on. A snapshot remains when its sandbox ends, until it is deleted. Take one
    /// before a risky change, or after a long setup.
    Take(TakeSnapshot),
    /// List the snapshots of the account, newest first. If nextOffset is in the result, there are more: call again with it as offset.
    List(ListSnapshots),
    /// Return the sandbox of a snapshot to that snapshot: end its processes and replace all its files. Changes since the snapshot are
    /// lost; take another snapshot first to keep them. To have both states, call create_sandbox with the snapshot as image instead.
    Rollback(Rollback),
    /// Delete a snapshot. This cannot be undone. Sandboxes that were created from it continue to work.
    Delete(DeleteSnapshot),
}

/// The result of an action.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum SnapshotsManaged {
    Taken(Snapshot),
    Listed(SnapshotsListed),
    RolledBack(RolledBack),
    Deleted(SnapshotDeleted),
}

impl Declared for ManageSnapshots {
    const NAME: &'static str = "manage_snapshots";
    const TITLE: &'static str = "Manage snapshots";
    const EFFECT: Effect = Effect::Destroys;
    type Output = SnapshotsManaged;

    async fn call(self, call: &ToolCall) -> Result<ToolReply<SnapshotsManaged>, ToolFailure> {
        Ok(match self {
            Self::Take(arguments) => take(call, arguments).await?.map(SnapshotsManaged::Taken),
            Self::List(arguments) => list(call, arguments).await?.map(SnapshotsManaged::Listed),
            Self::Rollback(arguments) => {
                rollback::rollback(call, arguments).await?.map(SnapshotsManaged::RolledBack)
            }
            Self::Delete(arguments) => delete(call, arguments).await?.map(SnapshotsManaged::Deleted),
        })
    }
}

/// A snapshot, as results have it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The id of the snapshot, which can be the image of create_sandbox.
    snapshot_id: String,
    /// The sandbox of the snapshot. It may have ended.
    sandbox_id: String,
    /// The name of the snapshot, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// The image of the sandbox.
    image: String,
    /// Whether it has the processes.
    memory: bool,
    /// Disk space that it takes.
    size_bytes: u64,
    /// When it was taken.
    #[schemars(with = "String")]
    created_at: Timestamp,
}

impl From<SnapshotView> for Snapshot {
    fn from(view: SnapshotView) -> Self {
        let SnapshotView { id, sandbox_id, name, image, memory, size_bytes, created_at, .. } = view;
        let (snapshot_id, sandbox_id) = (id.to_string(), sandbox_id.to_string());
        Self { snapshot_id, sandbox_id, name, image, memory, size_bytes, created_at }
    }
}

/// What to store.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TakeSnapshot {
    /// A name, such as after-setup. It need not be unique.
    #[schemars(length(min = 1, max = LONGEST_NAME))]
    name: Option<String>,
    /// Store the running processes with their memory, too. Not every isolation can. Default: false.
    #[serde(default)]
    memory: bool,
    sandbox_id: Option<SandboxReference>,
}

async fn take(call: &ToolCall, arguments: TakeSnapshot) -> Result<ToolReply<Snapshot>, ToolFailure> {
    let TakeSnapshot { name, memory, sandbox_id } = arguments;
    let target = call.target(sandbox_id.as_deref()).await?;
    let mut take = target.sandbox.snapshot().memory(memory).metadata(MARK, "created");
    take = take.set_some(name, sandboxd_client::TakeSnapshot::name);
    let taken = match take.await {
        Ok(taken) => taken,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    if call.cancelled.is_cancelled() {
        // Nobody gets the id.
        call.client.delete_snapshot(taken.id.as_str()).await?;
        return Err(ToolFailure::cancelled());
    }
    Ok(ToolReply::json(target.note, Snapshot::from(taken)))
}

/// Which snapshots to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSnapshots {
    /// Only snapshots with this name.
    #[schemars(length(min = 1, max = LONGEST_NAME))]
    name: Option<String>,
    /// Only snapshots of this sandbox. Default: of all sandboxes.
    sandbox_id: Option<SandboxReference>,
    #[serde(default)]
    offset: Offset,
    limit: Option<Limit>,
}

/// A page of snapshots.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotsListed {
    snapshots: Vec<Snapshot>,
    /// Number of items that match.
    total: u64,
    /// If there are more: the offset of the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

async fn list(call: &ToolCall, arguments: ListSnapshots) -> Result<ToolReply<SnapshotsListed>, ToolFailure> {
    let ListSnapshots { name, sandbox_id, offset, limit } = arguments;
    let size = page::size(limit)?;
    let mut query = call.client.snapshots().page_size(size);
    if let Some(id) = sandbox_id {
        query = query.of(call.client.find(&id).await?.id());
    }
    query = query.set_some(name, Snapshots::name);
    let found = query.page(offset.0).await?;
    let next_offset = page::next_offset(&found.pagination, offset, found.data.len());
    let listed = SnapshotsListed {
        snapshots: found.data.into_iter().map(Snapshot::from).collect(),
        total: found.pagination.total,
        next_offset,
    };
    Ok(ToolReply::json(None, listed))
}

/// The snapshot to delete.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteSnapshot {
    /// The snapshot.
    #[schemars(length(max = 64), regex(pattern = id_pattern(SnapshotId::PREFIX)))]
    snapshot_id: String,
}

/// A snapshot that is gone.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotDeleted {
    /// The deleted snapshot.
    snapshot_id: String,
}

async fn delete(
    call: &ToolCall,
    arguments: DeleteSnapshot,
) -> Result<ToolReply<SnapshotDeleted>, ToolFailure> {
    let DeleteSnapshot { snapshot_id } = arguments;
    let id: SnapshotId = parse_id("snapshotId", &snapshot_id)?;
    call.client.delete_snapshot(id.as_str()).await?;
    Ok(ToolReply::json(None, SnapshotDeleted { snapshot_id }))
}
