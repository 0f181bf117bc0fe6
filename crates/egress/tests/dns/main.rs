//! The sandboxes' DNS server over real sockets, between clients on loopback addresses and a scripted upstream.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod inside;
mod names;
mod policies;
mod rebinding;
mod resolver;
mod upstream;
mod upstreams;
mod wire;
