//! The network of a host that the tests make themselves, with packets that are really sent. Needs root.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fixture;
mod fragments;
mod lasting;
mod passing;
mod rate;
mod refusing;
mod speed;
