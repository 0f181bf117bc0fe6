//! Tests of the engine on an in-memory backend, store and network with a paused clock: days pass in milliseconds, agents are hostile,
//! every step fails once, and no sandbox may be left.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cancelled;
mod crash;
mod deadlines;
mod detached;
mod end_reasons;
mod events;
mod expiry_warnings;
mod external_executions;
mod faults;
mod files;
mod harness;
mod hibernation;
mod host_disk;
mod hostile;
mod idempotency;
mod interruptions;
mod memory_snapshots;
mod model;
mod names;
mod network;
mod pool;
mod ports;
mod processes;
mod queue;
mod replaced_disks;
mod retained_disk;
mod retention;
mod snapshot_copies;
mod snapshots;
mod warnings;
