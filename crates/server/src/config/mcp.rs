//! The MCP server that the configuration describes.

use std::time::Duration;

use ::mcp::{HttpServer, HttpSettings, Settings};
use tokio_util::sync::CancellationToken;

use super::values::Mcp;

impl Mcp {
    /// A server whose sessions end with `stop`.
    pub fn server(&self, stop: &CancellationToken) -> HttpServer {
        let minutes = |minutes: u32| Duration::from_secs(u64::from(minutes) * 60);
        HttpServer::new(HttpSettings {
            tools: Settings {
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
