//! The limits of connections. Every one has a default that suits the service; tests make the times short.

use std::time::Duration;

/// Headers of one request; what the HTTP parsers are built for.
pub const MAX_HEADERS: usize = 100;

/// What one connection, and all of them together, may take.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections open at once on one listener; further ones are closed as soon as they are accepted.
    pub max_connections: usize,
    /// From the connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request head to its last.
    pub head_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// How long a request body may stay away while its reader waits for it.
    pub body_timeout: Duration,
    /// What a request body has to bring a second in the long run, once `body_timeout` is used up.
    pub body_min_bytes_per_second: u32,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
    /// The longest a connection is kept after an answer that ends it, to let the client read it in full.
    pub linger_timeout: Duration,
    /// Request line and headers together.
    pub max_head_bytes: usize,
    /// Requests at once on one HTTP/2 connection.
    pub max_streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            body_min_bytes_per_second: 4096,
            write_timeout: Duration::from_secs(60),
            linger_timeout: Duration::from_secs(10),
            max_head_bytes: 32 * 1024,
            max_streams: 256,
        }
    }
}
