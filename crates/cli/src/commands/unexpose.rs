//! `sbx unexpose`: ports of a sandbox are reached from outside no more.

use std::process::ExitCode;

use anyhow::Result;
use client::Client;

use crate::cli::UnexposeArguments;
use crate::output;

pub async fn unexpose(client: &Client, json: bool, arguments: &UnexposeArguments) -> Result<ExitCode> {
    let sandbox = client.sandbox(&arguments.id)?;
    for port in &arguments.ports {
        let closed = sandbox.close_port(*port).await?;
        if json { output::json(&closed)? } else { output::text(&format!("{}\n", closed.port))? }
    }
    Ok(ExitCode::SUCCESS)
}
