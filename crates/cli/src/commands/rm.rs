//! `sbx rm`: terminates sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Code, SandboxState};
use serde_json::json;

use super::batch::{Form, ItemResult, for_each};
use super::merged_lists::merge;
use crate::cli::RmArguments;

pub async fn rm(client: &Client, json: bool, arguments: RmArguments) -> Result<ExitCode> {
    let may_be_gone = arguments.all || arguments.force;
    let ids = if arguments.all { live_ids(client).await? } else { arguments.ids };
    let form = if json && arguments.all { Form::Array } else { Form::of(json, ids.len()) };
    for_each(&ids, form, async |id: &String| {
        let ended = async {
            let sandbox = client.find(id).await?;
            let end = sandbox.terminate().await?;
            Ok::<_, sandboxd_client::Error>((sandbox, end))
        };
        let (sandbox, end) = match ended.await {
            // The sandbox terminated meanwhile, so --all has nothing to do for it.
            Err(error) if may_be_gone && error.code() == Code::SandboxNotFound => return Ok(None),
            ended => ended?,
        };
        let value = json!({
            "id": sandbox.id(),
            "state": SandboxState::Terminated,
            "terminatedAt": end.terminated_at,
            "reason": end.reason,
            "totalRuntimeMs": end.total_runtime_ms,
        });
        ItemResult::new(id, value).map(Some)
    })
    .await
}

/// Ids of all sandboxes that are not terminated.
async fn live_ids(client: &Client) -> Result<Vec<String>> {
    // Lists running ones again, because a paused one may be resumed before the second list.
    let states = [SandboxState::Running, SandboxState::Paused, SandboxState::Running];
    let found = merge(states.map(|state| client.list().state(state)), usize::MAX).await?;
    Ok(found.into_iter().map(|item| item.id.to_string()).collect())
}
