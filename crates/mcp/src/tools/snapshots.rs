//! `take_snapshot`, `list_snapshots` and `delete_snapshot`.

use rmcp::model::{CallToolResult, JsonObject, Tool};
use sandboxd_client::{SnapshotId, SnapshotView, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::schema::{self, Effect};
use super::{Call, json_result, page, parse, parse_id};
use crate::failure::Failure;
use crate::session::MARK;

const LONGEST_NAME: usize = 128;

pub fn take_tool() -> Tool {
    let tool = schema::tool(
        "take_snapshot",
        "Take a snapshot",
        "Store a copy of all files of a sandbox, while it runs on. Return to it with rollback_sandbox, or start new sandboxes from it: pass \
         snapshotId as image to create_sandbox. A snapshot remains when its sandbox ends, until delete_snapshot. Take one before a risky change, or after a long setup.",
        Effect::Adds,
        schema::input(
            json!({
                "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "description": "A name, such as after-setup. It need not be unique."},
                "memory": schema::boolean("Store the running processes with their memory, too. Not every isolation can. Default: false."),
                "sandboxId": schema::sandbox_id()
            }),
            &[],
        ),
        schema::output(properties(), &REQUIRED),
    );
    schema::closed_world(tool)
}

pub fn list_tool() -> Tool {
    let tool = schema::tool(
        "list_snapshots",
        "List snapshots",
        "List the snapshots of the account, newest first. If nextOffset is in the result, there are more: call again with it as offset.",
        Effect::Reads,
        schema::input(
            json!({
                "name": {"type": "string", "minLength": 1, "maxLength": LONGEST_NAME, "description": "Only snapshots with this name."},
                "sandboxId": schema::id("sb_", "Only snapshots of this sandbox. Default: of all sandboxes."),
                "offset": page::offset("Snapshots"),
                "limit": page::limit("snapshots")
            }),
            &[],
        ),
        page::output("snapshots", &schema::output(properties(), &REQUIRED)),
    );
    schema::idempotent(schema::closed_world(tool))
}

pub fn delete_tool() -> Tool {
    let tool = schema::tool(
        "delete_snapshot",
        "Delete a snapshot",
        "Delete a snapshot. This cannot be undone. Sandboxes that were created from it continue to work.",
        Effect::Destroys,
        schema::input(json!({"snapshotId": snapshot_id()}), &["snapshotId"]),
        schema::output(json!({"snapshotId": schema::text("The deleted snapshot.")}), &["snapshotId"]),
    );
    schema::idempotent(schema::closed_world(tool))
}

pub fn snapshot_id() -> Value {
    schema::id(SnapshotId::PREFIX, "The snapshot.")
}

const REQUIRED: [&str; 6] = ["snapshotId", "sandboxId", "image", "memory", "sizeBytes", "createdAt"];

fn properties() -> Value {
    json!({
        "snapshotId": schema::text("The id of the snapshot, which can be the image of create_sandbox."),
        "sandboxId": schema::text("The sandbox that was copied. It may have ended."),
        "name": schema::text("The name of the snapshot, if it has one."),
        "image": schema::text("The image of the sandbox."),
        "memory": schema::boolean("Whether it has the processes."),
        "sizeBytes": {"type": "integer", "description": "Disk space that it takes."},
        "createdAt": schema::text("When it was taken.")
    })
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Snapshot {
    snapshot_id: String,
    sandbox_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    image: String,
    memory: bool,
    size_bytes: u64,
    created_at: Timestamp,
}

impl From<SnapshotView> for Snapshot {
    fn from(view: SnapshotView) -> Self {
        let SnapshotView { id, sandbox_id, name, image, memory, size_bytes, created_at, .. } = view;
        let (snapshot_id, sandbox_id) = (id.to_string(), sandbox_id.to_string());
        Self { snapshot_id, sandbox_id, name, image, memory, size_bytes, created_at }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TakeArguments {
    name: Option<String>,
    #[serde(default)]
    memory: bool,
    sandbox_id: Option<String>,
}

pub async fn take(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let TakeArguments { name, memory, sandbox_id } = parse(arguments)?;
    let target = call.target(sandbox_id.as_deref()).await?;
    let mut take = target.sandbox.snapshot().memory(memory).metadata(MARK, "created");
    if let Some(name) = name {
        take = take.name(name);
    }
    let taken = match take.await {
        Ok(taken) => taken,
        Err(error) => return Err(call.failed(&target.sandbox, error).await),
    };
    if call.cancelled.is_cancelled() {
        // Nobody gets the id.
        call.client.delete_snapshot(taken.id.as_str()).await?;
        return Err(Failure::cancelled());
    }
    json_result(target.note, &Snapshot::from(taken))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ListArguments {
    name: Option<String>,
    sandbox_id: Option<String>,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotsListed {
    snapshots: Vec<Snapshot>,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

pub async fn list(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let ListArguments { name, sandbox_id, offset, limit } = parse(arguments)?;
    let size = page::size(limit)?;
    let mut query = call.client.snapshots().page_size(size);
    if let Some(id) = sandbox_id {
        query = query.of(call.client.find(&id).await?.id());
    }
    if let Some(name) = name {
        query = query.name(name);
    }
    let found = query.page(offset).await?;
    let next_offset = page::next_offset(&found.pagination, offset, found.data.len());
    let listed = SnapshotsListed {
        snapshots: found.data.into_iter().map(Snapshot::from).collect(),
        total: found.pagination.total,
        next_offset,
    };
    json_result(None, &listed)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeleteArguments {
    snapshot_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SnapshotDeleted {
    snapshot_id: String,
}

pub async fn delete(call: &Call, arguments: JsonObject) -> Result<CallToolResult, Failure> {
    let DeleteArguments { snapshot_id } = parse(arguments)?;
    let id: SnapshotId = parse_id("snapshotId", &snapshot_id)?;
    call.client.delete_snapshot(id.as_str()).await?;
    json_result(None, &SnapshotDeleted { snapshot_id })
}
