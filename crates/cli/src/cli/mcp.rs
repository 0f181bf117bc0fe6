//! The arguments of `sbx mcp`.

use std::time::Duration;

use clap::Args;

use super::time;

/// The arguments of `sbx mcp`.
#[derive(Debug, Args)]
pub struct McpArguments {
    /// Create sandboxes from this image, unless the model chooses another one
    #[arg(long, value_name = "IMAGE", default_value = "ubuntu:24.04")]
    pub image: String,
    /// Terminate the session's sandbox after this running time, if the session has not ended [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub lifetime: Option<Duration>,
    /// Let sandboxes reach only this domain; repeat for several
    #[arg(long = "allow-domain", value_name = "DOMAIN", conflicts_with = "offline")]
    pub allow_domains: Vec<String>,
    /// Let sandboxes reach no network
    #[arg(long)]
    pub offline: bool,
}
