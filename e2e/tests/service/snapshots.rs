//! Snapshots, rollbacks and forks, with and without processes.

mod disks;
mod fork;
mod kills;
pub mod processes;
mod rollback;
