//! `sbx open`: an exposed port, or the service's page about its interface, in a browser where there is one.
//!
//! The address of a private port has a token in it, which is made anew each time. It is printed for whoever has no browser here;
//! a program that asks for JSON opens it itself.

use std::io::IsTerminal;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Result, bail};
use sandboxd_client::{Client, PortVisibility};
use serde_json::json;

use crate::cli::OpenArguments;
use crate::output;

pub async fn open(client: &Client, json: bool, arguments: &OpenArguments) -> Result<ExitCode> {
    let url = match (&arguments.id, arguments.port) {
        (Some(id), Some(port)) => address(client, id, port, arguments).await?,
        _ => format!("{}/docs", client.url()),
    };
    if json {
        output::json(&json!({ "url": url }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text(&format!("{url}\n"))?;
    let shown_by = |name: &str| std::env::var_os(name).is_some();
    if std::io::stdout().is_terminal() && (shown_by("DISPLAY") || shown_by("WAYLAND_DISPLAY")) {
        // Whoever has no browser has the address.
        let _ = Command::new("xdg-open").arg(&url).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(ExitCode::SUCCESS)
}

async fn address(client: &Client, id: &str, port: u16, arguments: &OpenArguments) -> Result<String> {
    let sandbox = client.sandbox(id)?;
    let ports = sandbox.ports().await?;
    let Some(exposed) = ports.into_iter().find(|exposed| exposed.port == port) else {
        bail!("port {port} of {id} is not exposed; 'sbx expose {id} {port}' does that");
    };
    Ok(match exposed.visibility {
        PortVisibility::Public => exposed.url,
        PortVisibility::Private => sandbox.port_token(port).expires_in(arguments.time).await?.url,
    })
}
