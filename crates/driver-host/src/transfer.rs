//! The files of snapshots, for copies on other hosts.
//!
//! ```text
//! disk               DIR/ID.img
//! memory/NAME        DIR/memory/NAME
//! agent              the copy of the agent that the processes run
//! ```
//!
//! Files that arrive from another host are written beside their places and are moved there when all are complete.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use driver::{SnapshotFile, SnapshotScope};

use crate::agents;
use crate::disk::sync_names;
use crate::removal::{remove_if_exists, remove_tree};
use crate::settings::Settings;
use crate::snapshot::{image, memory, unfinished_image};
use crate::stored_processes;

const DISK: &str = "disk";
const MEMORY: &str = "memory/";
const AGENT: &str = "agent";
/// Far more than any isolation backend stores.
const MOST_FILES: usize = 256;

fn unfinished_memory(dir: &Path) -> PathBuf {
    dir.join("memory.new")
}

fn unfinished_agent(dir: &Path) -> PathBuf {
    dir.join("agent.new")
}

/// The files of the snapshot in a directory; none if it is not complete.
pub fn files(settings: &Settings, dir: &Path, scope: SnapshotScope) -> io::Result<Vec<SnapshotFile>> {
    match scope {
        SnapshotScope::Disk => {
            let path = image(dir);
            let disk = path.exists().then(|| SnapshotFile { name: DISK.to_owned(), path });
            Ok(disk.into_iter().collect())
        }
        SnapshotScope::Processes => {
            let memory = memory(dir);
            if !memory.exists() {
                return Ok(Vec::new());
            }
            let mut files = Vec::new();
            for entry in fs::read_dir(&memory)? {
                let entry = entry?;
                let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
                files.push(SnapshotFile { name: format!("{MEMORY}{name}"), path: entry.path() });
            }
            let agent = agents::path(settings, &stored_processes::agent_name(&memory)?);
            files.push(SnapshotFile { name: AGENT.to_owned(), path: agent });
            files.sort_by(|one, two| one.name.cmp(&two.name));
            Ok(files)
        }
    }
}

/// The space that all files in the directory of a snapshot take.
pub fn size(dir: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(dir) {
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

/// Removes the processes of a snapshot. A crash in between leaves no part of them that looks complete.
pub fn remove_processes(dir: &Path) -> io::Result<()> {
    let unfinished = unfinished_memory(dir);
    remove_tree(&unfinished)?;
    match fs::rename(memory(dir), &unfinished) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed.and_then(|()| remove_tree(&unfinished)),
    }
}

/// Where to write files with these names.
pub fn receive(dir: &Path, names: &[String]) -> io::Result<Vec<PathBuf>> {
    if names.len() > MOST_FILES {
        return Err(io::Error::other(format!(
            "a snapshot has {} files; at most {MOST_FILES} are allowed",
            names.len()
        )));
    }
    fs::create_dir_all(dir)?;
    let memory = unfinished_memory(dir);
    // What an interrupted transfer has left must not be completed with this one.
    remove_tree(&memory)?;
    for file in [unfinished_image(dir), unfinished_agent(dir)] {
        remove_if_exists(&file)?;
    }
    if names.iter().any(|name| name.starts_with(MEMORY)) {
        fs::DirBuilder::new().mode(0o700).create(&memory)?;
    }
    names.iter().map(|name| place(dir, &memory, name)).collect()
}

fn place(dir: &Path, memory: &Path, name: &str) -> io::Result<PathBuf> {
    // The names come from the object store.
    let is_plain = |name: &&str| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    match name {
        DISK => Ok(unfinished_image(dir)),
        AGENT => Ok(unfinished_agent(dir)),
        _ => match name.strip_prefix(MEMORY).filter(is_plain) {
            Some(name) => Ok(memory.join(name)),
            None => Err(io::Error::other(format!("a snapshot has no file '{name}'"))),
        },
    }
}

/// Moves the files that were received to their places. Afterwards they survive a power failure.
pub fn complete(settings: &Settings, dir: &Path) -> io::Result<()> {
    let unfinished = unfinished_memory(dir);
    if unfinished.exists() {
        let agent = unfinished_agent(dir);
        stored_processes::check(&unfinished)?;
        let name = agents::adopt_copy(settings, &agent, &stored_processes::agent_name(&unfinished)?)?;
        stored_processes::set_agent_name(&unfinished, &name)?;
        stored_processes::sync(&unfinished)?;
        remove_tree(&memory(dir))?;
        fs::rename(unfinished, memory(dir))?;
    }
    let disk = unfinished_image(dir);
    if disk.exists() {
        fs::set_permissions(&disk, fs::Permissions::from_mode(0o400))?;
        File::open(&disk)?.sync_all()?;
        fs::rename(disk, image(dir))?;
    }
    sync_names(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_elsewhere_do_not_lead_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "",
            "memory",
            "memory/",
            "memory/..",
            "memory/../x",
            "memory//x",
            "../disk",
            "disk/",
            "/disk",
            "memory/.x",
        ] {
            assert!(receive(dir.path(), &[name.to_owned()]).is_err(), "{name}");
        }
        assert!(receive(dir.path(), &vec!["disk".to_owned(); MOST_FILES + 1]).is_err());
        let names = ["disk", "memory/pages.img", "agent"].map(str::to_owned);
        for path in receive(dir.path(), &names).unwrap() {
            assert!(path.starts_with(dir.path()), "{}", path.display());
        }
    }
}
