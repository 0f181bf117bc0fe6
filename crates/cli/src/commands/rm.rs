//! `sbx rm`: terminates sandboxes.

use std::cell::RefCell;
use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Code, Error, SandboxState};
use serde_json::{Value, json};

use super::batch::{BatchForm, ItemResult, for_each};
use super::merged_lists::merge;
use super::named_sandbox::find_sandbox;
use crate::cli::RmArguments;
use crate::output::{OutputFormat, note};

/// Most sandboxes that a note names.
const NAMED: usize = 5;

/// Terminates each sandbox and prints its id. One that was terminated before is no error.
pub async fn rm(client: &Client, format: OutputFormat, arguments: RmArguments) -> Result<ExitCode> {
    let may_be_gone = arguments.all || arguments.force;
    let ids = if arguments.all { live_ids(client).await? } else { arguments.ids };
    // Of all sandboxes there may be one only.
    let form = match format {
        OutputFormat::Json if arguments.all => BatchForm::Array,
        format => BatchForm::of(format, ids.len()),
    };
    let terminated_before = RefCell::new(Vec::new());
    let code = for_each(&ids, form, async |id: &String| {
        let ended = async {
            let sandbox = find_sandbox(client, id).await?;
            let end = sandbox.terminate().await?;
            Ok::<_, sandboxd_client::Error>((sandbox, end))
        };
        let (sandbox, end) = match ended.await {
            // The sandbox terminated meanwhile, so --all has nothing to do for it.
            Err(error) if may_be_gone && error.code() == Code::SandboxNotFound => return Ok(None),
            Err(error) if is_terminated(&error) => {
                terminated_before.borrow_mut().push(id.clone());
                return Ok(None);
            }
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
    .await?;
    let terminated_before = terminated_before.into_inner();
    terminated_text(&terminated_before).inspect(|text| note(text));
    Ok(code)
}

/// Names a few; of more, such as those of `rm $(sbx ls -aq)`, only the number is of interest.
fn terminated_text(ids: &[String]) -> Option<String> {
    match ids.len() {
        0 => None,
        1..=NAMED => Some(format!("sbx: already terminated: {}", ids.join(", "))),
        count => Some(format!("sbx: already terminated: {count} sandboxes")),
    }
}

/// Whether the sandbox was terminated before. One that never existed, or whose record was removed, is an error.
fn is_terminated(error: &Error) -> bool {
    let is_state = |state: &Value| *state == json!(SandboxState::Terminated);
    error.code() == Code::SandboxNotFound && error.details().get("state").is_some_and(is_state)
}

/// Ids of all sandboxes that are not terminated.
async fn live_ids(client: &Client) -> Result<Vec<String>> {
    // Lists running ones again, because a paused one may be resumed before the second list.
    let states = [SandboxState::Running, SandboxState::Paused, SandboxState::Running];
    let found = merge(states.map(|state| client.list().state(state)), usize::MAX, |_| true).await?;
    Ok(found.into_iter().map(|item| item.id.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_terminated_sandboxes_are_a_number() {
        let ids = |count: usize| (0..count).map(|at| format!("sb_{at}")).collect::<Vec<_>>();
        assert_eq!(terminated_text(&ids(0)), None);
        assert_eq!(terminated_text(&ids(2)).unwrap(), "sbx: already terminated: sb_0, sb_1");
        assert_eq!(terminated_text(&ids(60)).unwrap(), "sbx: already terminated: 60 sandboxes");
    }
}
