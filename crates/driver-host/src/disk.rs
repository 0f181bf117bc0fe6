//! Disks of sandboxes: images and their file systems, and what of them is mounted.

pub mod ext4;
mod image;
mod layers;
mod mounted;
pub mod read_only;
pub mod replaced;
mod root;

pub use image::{Content, clear_unfinished, copy_data, create, create_template, ensure, sync_names};
pub use layers::{OpenLayer, SnapshotMounts};
pub use mounted::{MountId, MountedDisk, MountedDisks};
pub use root::{Assembled, Mounts, assemble};
