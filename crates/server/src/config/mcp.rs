//! The MCP server that the configuration describes.

use std::time::Duration;

use ::mcp::{HttpServer, HttpSettings, McpSettings};
use tokio_util::sync::CancellationToken;

use super::values::Mcp;

/// Key, type and meaning, for the reference.
pub(super) const ROWS: &[(&str, &str, &str)] = &[
    ("enabled", "boolean", "Whether the service has `/mcp`. Every request needs an API key."),
    ("image", "image", "Image of sandboxes, unless a call names another one."),
    (
        "max_sessions",
        "count, 1 to 100000",
        "Open sessions. One account can have a quarter of them. Further ones get 429.",
    ),
    (
        "idle_minutes",
        "minutes, 6 to 1440",
        "A session without a request or a message for this time ends, and its sandbox is terminated.",
    ),
    (
        "sandbox_minutes",
        "minutes, 1 to 1440",
        "Lifetime of the sandbox of a session. It ends the sandbox if the daemon is killed before the session ends.",
    ),
];

impl Mcp {
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
