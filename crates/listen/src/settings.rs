//! The limits of connections. The defaults suit the service; tests shorten the times.

use std::time::Duration;

/// Headers of one request: hyper's own limit for HTTP/1.
pub const MAX_HEADERS: usize = 100;

/// The limits of one connection and of all connections together.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections open at once on one listener; further ones are closed as soon as they are accepted.
    pub max_connections: usize,
    /// Connections open at once from one source address, over all listeners; further ones are closed.
    pub max_connections_per_address: usize,
    /// TLS handshakes in progress at once from one source address; further ones wait, at most `handshake_timeout`.
    pub max_handshakes_per_address: usize,
    /// From the accepted connection to the end of the TLS handshake.
    pub handshake_timeout: Duration,
    /// From the first byte of a request head to its last.
    pub head_timeout: Duration,
    /// How long a connection may stay open without a request.
    pub idle_timeout: Duration,
    /// How long a handler waits for bytes of the request body, and an HTTP/1 connection for what the handler did not read.
    pub body_timeout: Duration,
    /// The rate of a request body once `body_timeout` is used up.
    pub body_min_bytes_per_second: u32,
    /// How long an HTTP/1 response waits for the rest of a chunked request body that its handler did not read.
    pub chunks_wait: Duration,
    /// How long a client may leave a response unread: on HTTP/1 per connection, on HTTP/2 per stream.
    pub write_timeout: Duration,
    /// How long a connection is kept after its last response, so that the client can read all of it.
    pub linger_timeout: Duration,
    /// Size of the request line and the headers together.
    pub max_head_bytes: usize,
    /// Concurrent requests on one HTTP/2 connection.
    pub max_streams: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_address: 2_500,
            max_handshakes_per_address: 64,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(30),
            body_min_bytes_per_second: 4096,
            chunks_wait: Duration::from_millis(500),
            write_timeout: Duration::from_secs(60),
            linger_timeout: Duration::from_secs(10),
            max_head_bytes: 32 * 1024,
            max_streams: 256,
        }
    }
}
