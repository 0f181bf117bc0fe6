//! Tests of the built agent: it runs as process 1 of a process-number namespace of its own (or plainly, where a test says
//! so), and a small synchronous host talks to it. When a test ends, the namespace ends with all that is in it.
//!
//! They need root.

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
mod size;
mod streams;
mod terminals;
