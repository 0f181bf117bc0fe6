//! `sbx resume`: resumes paused sandboxes.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, Code, SandboxState};
use serde_json::json;

use super::batch::{BatchForm, ItemResult, for_each};
use super::named_sandbox::find_sandbox;
use crate::cli::ResumeArguments;
use crate::output::{self, OutputFormat};

/// Resumes each sandbox and prints its id. One that runs already is left as it is, unless its processes were to end.
pub async fn resume(client: &Client, format: OutputFormat, arguments: &ResumeArguments) -> Result<ExitCode> {
    let ids = &arguments.sandboxes.ids;
    for_each(ids, BatchForm::of(format, ids.len()), async |id: &String| {
        let sandbox = find_sandbox(client, id).await?;
        if arguments.cold {
            return ItemResult::new(id, sandbox.resume_cold().await?).map(Some);
        }
        match sandbox.resume().await {
            Ok(resumed) => ItemResult::new(id, resumed).map(Some),
            Err(error) if error.code() == Code::InvalidState => {
                if sandbox.refresh().await?.state != SandboxState::Running {
                    return Err(error.into());
                }
                output::note(&format!("sbx: {id} runs already"));
                ItemResult::new(id, json!({ "id": sandbox.id(), "state": SandboxState::Running })).map(Some)
            }
            Err(error) => Err(error.into()),
        }
    })
    .await
}
