//! The crate against real registries, layouts, archives and Debian mirrors, as root.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod client;
mod debian;
mod hostile_registry;
mod local;
mod processes;
mod pull;
mod support;
