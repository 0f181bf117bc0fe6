//! Snapshots: which exist, which are in use, and what of them is removed from the host.
//!
//! A snapshot is a record and a disk. The disk stays on the host as long as a record of a snapshot or of a sandbox has it among its
//! layers, or a hold exists; a deleted snapshot may therefore leave its disk to others. `sweep` removes disks that nothing refers to, and
//! until then `unrecorded` counts them in the quotas of their account.

mod copies;
pub mod delete;
mod document;
mod registry;
mod sandbox_document;
mod sweep;
pub mod take;
mod unrecorded;
mod usage;

use std::path::Path;

pub use copies::{Copies, SnapshotCopies, snapshot_ids};
pub use document::Document;
pub use registry::{PendingShare, SnapshotRegistry};
pub use sandbox_document::SandboxDocument;
pub use sweep::{Sweeper, used_by};
pub use usage::{SnapshotKind, SnapshotUsage};

/// The disks of snapshots among layers, and the layers of the image below them.
pub fn split_layers(layers: &[String]) -> (&[String], &[String]) {
    let is_image = |layer: &String| driver::snapshot_of_layer(Path::new(layer)).is_none();
    layers.split_at(layers.iter().position(is_image).unwrap_or(layers.len()))
}
