//! `sbx expose`: ports of a sandbox get addresses outside.

use std::process::ExitCode;

use anyhow::Result;
use client::Client;

use crate::cli::ExposeArguments;
use crate::output;

pub async fn expose(client: &Client, json: bool, arguments: &ExposeArguments) -> Result<ExitCode> {
    let sandbox = client.sandbox(&arguments.id)?;
    for port in &arguments.ports {
        let mut expose = sandbox.expose(*port);
        if arguments.public {
            expose = expose.public();
        }
        if arguments.no_resume {
            expose = expose.auto_resume(false);
        }
        let port = expose.await?;
        if json { output::json(&port)? } else { output::text(&format!("{}\n", port.url))? }
    }
    Ok(ExitCode::SUCCESS)
}
