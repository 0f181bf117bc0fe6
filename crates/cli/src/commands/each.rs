//! The same for several sandboxes: one that fails does not keep the next from its turn.

use std::process::ExitCode;

use anyhow::Result;
use client::{Client, Sandbox};
use serde_json::Value;

use crate::context::Failure;
use crate::output;

const OURS: u8 = 125;

/// Prints the id of each one that it worked for, or what the service said.
pub async fn each(
    client: &Client,
    json: bool,
    ids: &[String],
    act: impl AsyncFn(&Sandbox) -> Result<Value>,
) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for id in ids {
        let result = match client.sandbox(id) {
            Ok(sandbox) => act(&sandbox).await,
            Err(error) => Err(error.into()),
        };
        match result {
            Ok(said) if json => output::json(&said)?,
            Ok(_) => output::text(&format!("{id}\n"))?,
            Err(error) => {
                Failure(&error).print();
                code = ExitCode::from(OURS);
            }
        }
    }
    Ok(code)
}
