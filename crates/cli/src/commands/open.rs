//! `sbx open`: opens an exposed port or the API documentation in a browser, if there is one.
//!
//! The URL of a private port contains a new token. The URL is printed too; with `--json` no browser is opened.

use std::io::IsTerminal;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Result, bail};
use sandboxd_client::{Client, PortVisibility};
use serde_json::json;

use super::named_sandbox::find_sandbox;
use crate::cli::OpenArguments;
use crate::output::OutputFormat;

/// Prints the URL, and opens it in a browser if there is a desktop.
pub async fn open(client: &Client, format: OutputFormat, arguments: &OpenArguments) -> Result<ExitCode> {
    let url = match (&arguments.id, arguments.port) {
        (Some(id), Some(port)) => port_url(client, id, port, arguments).await?,
        _ => format!("{}/docs", client.url()),
    };
    format.print_id(&json!({ "url": url }), &url)?;
    let shown_by = |name: &str| std::env::var_os(name).is_some();
    if format == OutputFormat::Plain
        && std::io::stdout().is_terminal()
        && (shown_by("DISPLAY") || shown_by("WAYLAND_DISPLAY"))
    {
        // Without a browser the user has the URL.
        let _ = Command::new("xdg-open").arg(&url).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(ExitCode::SUCCESS)
}

async fn port_url(client: &Client, id: &str, port: u16, arguments: &OpenArguments) -> Result<String> {
    let sandbox = find_sandbox(client, id).await?;
    let ports = sandbox.ports().await?;
    let Some(exposed) = ports.into_iter().find(|exposed| exposed.port == port) else {
        bail!("port {port} of {id} is not exposed; run 'sbx expose {id} {port}'");
    };
    Ok(match exposed.visibility {
        PortVisibility::Public => exposed.url,
        PortVisibility::Private => sandbox.port_token(port).expires_in(arguments.time).await?.url,
    })
}
