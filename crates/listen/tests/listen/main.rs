//! Tests of the listeners over real sockets on loopback.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod kit;

mod flood;
mod leftover;
mod malformed;
mod memory;
mod protocol;
mod redirect;
mod reload;
mod slow;
mod stop;
mod upgrade;
