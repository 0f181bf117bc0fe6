//! Tests of the built agent. It runs as process 1 of a pid namespace, or as an ordinary process, and a small
//! synchronous host exchanges frames with it. When a test ends, all processes of the namespace end.
//!
//! The tests need root.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that meets the unexpected fails")]

mod archives;
mod commands;
mod detached;
mod dials;
mod file_ops;
mod files;
mod host;
mod kills;
mod links;
mod on_behalf;
mod size;
mod streams;
mod suspensions;
mod terminals;
