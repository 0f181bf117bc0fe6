//! `[mcp]`: the MCP server.

use std::time::Duration;

use ::mcp::{HttpServer, HttpSettings, McpSettings};
use anyhow::Result;
use tokio_util::sync::CancellationToken;

use super::declare::table;
use super::images::check_name;

table! {
    /// The MCP server at `/mcp`, for AI assistants. See [mcp.md](mcp.md).
    pub struct Mcp {
        /// Whether the service has `/mcp`. Every request needs an API key.
        enabled: bool = true, "boolean";
        /// Image of sandboxes, unless a call names another one.
        image: String = "ubuntu:24.04".to_owned(), "image";
        /// Open sessions. One account can have a quarter of them. Further ones get 429.
        max_sessions: u32 = 1000, "count" in 1..=100_000;
        /// A session without a request or a message for this time ends, and its sandbox is terminated.
        // A session must survive its longest command, which may send nothing for 5 minutes.
        idle_minutes: u32 = 15, "minutes" in 6..=1440;
        /// Lifetime of the sandbox of a session. It ends the sandbox if the daemon is killed before the session ends.
        sandbox_minutes: u32 = 60, "minutes" in 1..=1440;
    }
}

impl Mcp {
    pub(super) fn check(&self) -> Result<()> {
        check_name("mcp.image", &self.image)
    }

    /// A server whose sessions end with `stop`.
    pub fn server(&self, stop: &CancellationToken) -> HttpServer {
        let minutes = |minutes: u32| Duration::from_secs(u64::from(minutes) * 60);
        HttpServer::new(HttpSettings {
            tools: McpSettings {
                image: self.image.clone(),
                lifetime: minutes(self.sandbox_minutes),
                only_domains: None,
            },
            max_sessions: self.max_sessions as usize,
            idle: minutes(self.idle_minutes),
            stop: stop.clone(),
        })
    }
}
