//! The MCP server: tools with which a language model uses sandboxes.
//!
//! ```text
//! sbx mcp ──> stdio ──┐                                ┌──> Client over HTTP (sbx)
//!                     ├──> Server ──> tools ──> Client ┤
//! /mcp ─────> http ───┘        └── Session             └──> Client in process (daemon)
//! ```
//!
//! The tools call the REST API through the client library. In the daemon the client is connected to the daemon's own endpoints and
//! sends the key of the caller, so scopes, rate limits, quotas and events are those of the REST API. A [`Session`] owns the unnamed
//! sandbox and its forks, and terminates them when the session ends. If the process is killed, their lifetimes end them.

mod failure;
mod http;
mod server;
mod session;
mod stdio;
mod tools;

pub use http::{BODY_MAX, HttpResponse, HttpServer, HttpSettings, Owner, Refused};
pub use session::McpSettings;
pub use stdio::serve_stdio;
