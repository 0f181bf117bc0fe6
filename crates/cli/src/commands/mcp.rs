//! `sbx mcp`: an MCP server on standard input and output.
//!
//! Standard output has only messages of the protocol. The session ends with standard input, or with SIGINT or SIGTERM.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use mcp::McpSettings;
use sandboxd_client::Client;

use crate::cli::McpArguments;
use crate::interrupt::Interrupt;

const LONGEST_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Serves until standard input ends or a signal arrives, then ends the session.
pub async fn mcp(client: Client, arguments: McpArguments) -> Result<ExitCode> {
    let defaults = McpSettings::default();
    let lifetime = arguments.lifetime.unwrap_or(defaults.lifetime);
    if lifetime.is_zero() || lifetime > LONGEST_LIFETIME {
        bail!("--lifetime must be above 0 and at most 24h");
    }
    let restricted = arguments.offline || !arguments.allow_domains.is_empty();
    let settings = McpSettings {
        image: arguments.image,
        lifetime,
        only_domains: restricted.then_some(arguments.allow_domains),
    };
    let interrupt = Interrupt::listen()?;
    let stop = async {
        interrupt.first().await;
    };
    mcp::serve_stdio(client, settings, tokio::io::stdin(), tokio::io::stdout(), stop).await?;
    Ok(ExitCode::SUCCESS)
}
