//! The action `list` of `manage_sandboxes`.

use sandboxd_client::SandboxState;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::page::{Limit, Offset};
use super::reply::ToolReply;
use super::{ToolCall, page, schema};
use crate::failure::ToolFailure;

/// Which sandboxes to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSandboxes {
    /// The state. Default: running.
    #[serde(default)]
    #[schemars(schema_with = "listed_state")]
    state: Option<SandboxState>,
    #[serde(default)]
    offset: Offset,
    limit: Option<Limit>,
}

fn listed_state(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(["running", "paused", "terminated"])
}

/// A page of sandboxes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SandboxesListed {
    sandboxes: Vec<Item>,
    /// Number of items that match.
    total: u64,
    /// If there are more: the offset of the next call.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Item {
    /// The id of the sandbox.
    sandbox_id: String,
    /// Its name, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its state.
    #[schemars(with = "String")]
    state: SandboxState,
    /// Its image.
    image: String,
    /// When it was created.
    #[schemars(with = "String")]
    created_at: sandboxd_client::Timestamp,
    /// Whether calls without sandboxId use it.
    is_unnamed: bool,
    /// Whether it is terminated with this session, as forks of the unnamed one are.
    ends_with_session: bool,
}

/// Lists the sandboxes of the account.
pub async fn list(
    call: &ToolCall,
    arguments: ListSandboxes,
) -> Result<ToolReply<SandboxesListed>, ToolFailure> {
    let size = page::size(arguments.limit)?;
    let list = call.client.list().details().page_size(size);
    let list = list.state(arguments.state.unwrap_or(SandboxState::Running));
    let found = list.page(arguments.offset.0).await?;
    let (unnamed, owned) = match &call.session {
        Some(session) => (session.created().await, session.owned().await),
        None => (None, Vec::new()),
    };
    let next_offset = page::next_offset(&found.pagination, arguments.offset, found.data.len());
    let item = |item: sandboxd_client::SandboxItem| Item {
        is_unnamed: unnamed.as_ref().is_some_and(|unnamed| *unnamed.id() == item.id),
        ends_with_session: owned.contains(&item.id),
        sandbox_id: item.id.to_string(),
        name: item.name,
        state: item.state,
        image: item.image,
        created_at: item.created_at,
    };
    let listed = SandboxesListed {
        sandboxes: found.data.into_iter().map(item).collect(),
        total: found.pagination.total,
        next_offset,
    };
    Ok(ToolReply::json(None, listed))
}
