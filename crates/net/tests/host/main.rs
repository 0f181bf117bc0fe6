//! The network of a host that the tests make themselves, with packets that are really sent. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod lasting;
mod passing;
mod refusing;
mod speed;
mod world;
