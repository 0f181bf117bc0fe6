//! The proxy as those inside of a sandbox see it, honest and hostile: real sockets on loopback, where each sandbox and each
//! server has an address of its own. Only the kernel's part (who is turned to the proxy, and from where) is stood in for.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod fixture;
mod http;
mod http2;
mod load;
mod raw;
mod tls;
mod turns;
