//! Tests of the proxy with honest and hostile clients: real sockets on loopback, where each sandbox and each server has an
//! address of its own. Only the kernel's redirection is simulated.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod fixture;
mod http;
mod http2;
mod load;
mod raw;
mod tls;
mod turns;
