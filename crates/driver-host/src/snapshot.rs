//! Snapshots on this host. Each has a directory with its disk, and with its processes if it has some.
//!
//! ```text
//! DIR/ID.img         the disk
//! DIR/memory         stored processes
//! ```
//!
//! What is not complete has another name: `ID.new`, `memory.new`, `agent.new`.

mod changes;
mod image_copy;
mod transfer;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use api::SnapshotId;

use crate::paths::snapshots_dir;
use crate::removal::{remove_tree, rename_if_exists};
use crate::settings::Settings;
use crate::stored_processes;

pub use image_copy::ImageCopy;

/// The directory of a snapshot. Its name is the snapshot's id.
#[derive(Debug, Clone)]
pub struct SnapshotDir(PathBuf);

impl SnapshotDir {
    pub fn of(settings: &Settings, id: &SnapshotId) -> Self {
        Self(snapshots_dir(settings).join(id.as_str()))
    }

    /// The disk, whose name has the snapshot's id, too.
    pub fn image(&self) -> PathBuf {
        self.0.join(self.0.file_name().unwrap_or_default()).with_extension("img")
    }

    fn unfinished_image(&self) -> PathBuf {
        self.image().with_extension("new")
    }

    /// The stored processes.
    pub fn memory(&self) -> PathBuf {
        self.0.join("memory")
    }

    fn unfinished_memory(&self) -> PathBuf {
        self.0.join("memory.new")
    }

    fn unfinished_agent(&self) -> PathBuf {
        self.0.join("agent.new")
    }

    /// The space that all files take.
    pub fn size(&self) -> io::Result<u64> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            entries => entries?,
        };
        let mut bytes: u64 = 0;
        for entry in entries {
            let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path()))?;
            let size = match entry {
                // It was renamed or removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                Ok(metadata) if metadata.is_dir() => stored_processes::size(&path)?,
                metadata => metadata?.blocks().saturating_mul(512),
            };
            bytes = bytes.saturating_add(size);
        }
        Ok(bytes)
    }

    pub fn remove(&self) -> io::Result<()> {
        self.remove_processes()?;
        remove_tree(&self.0)
    }

    /// Removes the processes. A crash in between leaves no part of them that looks complete.
    pub fn remove_processes(&self) -> io::Result<()> {
        let unfinished = self.unfinished_memory();
        remove_tree(&unfinished)?;
        rename_if_exists(&self.memory(), &unfinished)?;
        remove_tree(&unfinished)
    }
}
