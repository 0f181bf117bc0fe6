//! `sbx open`: the service's page about its interface, in a browser where there is one.

use std::io::IsTerminal;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use client::Client;

use crate::output;

pub fn open(client: &Client) -> Result<ExitCode> {
    let url = format!("{}/docs", client.url());
    output::text(&format!("{url}\n"))?;
    let shown_by = |name: &str| std::env::var_os(name).is_some();
    if std::io::stdout().is_terminal() && (shown_by("DISPLAY") || shown_by("WAYLAND_DISPLAY")) {
        // Whoever has no browser has the address.
        let _ = Command::new("xdg-open").arg(&url).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    Ok(ExitCode::SUCCESS)
}
