//! Tests with real packets on hosts that the tests create. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod datagrams;
mod fixture;
mod fragments;
mod lasting;
mod networks;
mod passing;
mod rate;
mod refusing;
mod speed;
