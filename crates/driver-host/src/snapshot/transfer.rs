//! The files of snapshots, for copies on other hosts.
//!
//! ```text
//! disk               ID.img
//! memory/NAME        memory/NAME
//! agent              the copy of the agent that the processes run
//! ```
//!
//! Files that arrive from another host are written beside their places and are moved there when all are complete.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;

use driver::{SnapshotFile, SnapshotScope};

use super::SnapshotDir;
use crate::agent::copies;
use crate::disk::sync_names;
use crate::removal::{remove_if_exists, remove_tree};
use crate::settings::Settings;
use crate::stored_processes;

const DISK: &str = "disk";
const MEMORY: &str = "memory/";
const AGENT: &str = "agent";
/// Far more than any isolation backend stores.
const MOST_FILES: usize = 256;

impl SnapshotDir {
    /// The files for other hosts; none if the snapshot is not complete.
    pub fn files(&self, settings: &Settings, scope: SnapshotScope) -> io::Result<Vec<SnapshotFile>> {
        match scope {
            SnapshotScope::Disk => {
                let path = self.image();
                let disk = path.exists().then(|| SnapshotFile { name: DISK.to_owned(), path });
                Ok(disk.into_iter().collect())
            }
            SnapshotScope::Processes => {
                let memory = self.memory();
                if !memory.exists() {
                    return Ok(Vec::new());
                }
                let mut files = Vec::new();
                for entry in fs::read_dir(&memory)? {
                    let entry = entry?;
                    let name = entry.file_name().into_string().map_err(|_| io::ErrorKind::InvalidData)?;
                    files.push(SnapshotFile { name: format!("{MEMORY}{name}"), path: entry.path() });
                }
                let agent = copies::path(settings, &stored_processes::agent_name(&memory)?);
                files.push(SnapshotFile { name: AGENT.to_owned(), path: agent });
                files.sort_by(|one, two| one.name.cmp(&two.name));
                Ok(files)
            }
        }
    }

    /// Where to write files with these names.
    pub fn receive(&self, names: &[String]) -> io::Result<Vec<PathBuf>> {
        if names.len() > MOST_FILES {
            return Err(io::Error::other(format!(
                "a snapshot has {} files; at most {MOST_FILES} are allowed",
                names.len()
            )));
        }
        fs::create_dir_all(&self.0)?;
        let memory = self.unfinished_memory();
        // What an interrupted transfer has left must not be completed with this one.
        remove_tree(&memory)?;
        for file in [self.unfinished_image(), self.unfinished_agent()] {
            remove_if_exists(&file)?;
        }
        if names.iter().any(|name| name.starts_with(MEMORY)) {
            fs::DirBuilder::new().mode(0o700).create(&memory)?;
        }
        names.iter().map(|name| self.place(name)).collect()
    }

    fn place(&self, name: &str) -> io::Result<PathBuf> {
        // The names come from the object store.
        let is_plain = |name: &&str| !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        match name {
            DISK => Ok(self.unfinished_image()),
            AGENT => Ok(self.unfinished_agent()),
            _ => match name.strip_prefix(MEMORY).filter(is_plain) {
                Some(name) => Ok(self.unfinished_memory().join(name)),
                None => Err(io::Error::other(format!("a snapshot has no file '{name}'"))),
            },
        }
    }

    /// Moves the files that were received to their places. Afterwards they survive a power failure.
    pub fn complete(&self, settings: &Settings) -> io::Result<()> {
        let unfinished = self.unfinished_memory();
        if unfinished.exists() {
            let agent = self.unfinished_agent();
            stored_processes::check(&unfinished)?;
            let name = copies::adopt_copy(settings, &agent, &stored_processes::agent_name(&unfinished)?)?;
            stored_processes::set_agent_name(&unfinished, &name)?;
            stored_processes::sync(&unfinished)?;
            remove_tree(&self.memory())?;
            fs::rename(unfinished, self.memory())?;
        }
        let disk = self.unfinished_image();
        if disk.exists() {
            fs::set_permissions(&disk, fs::Permissions::from_mode(0o400))?;
            File::open(&disk)?.sync_all()?;
            fs::rename(disk, self.image())?;
        }
        sync_names(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_elsewhere_do_not_lead_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = SnapshotDir(dir.path().to_owned());
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
            assert!(snapshot.receive(&[name.to_owned()]).is_err(), "{name}");
        }
        assert!(snapshot.receive(&vec!["disk".to_owned(); MOST_FILES + 1]).is_err());
        let names = ["disk", "memory/pages.img", "agent"].map(str::to_owned);
        for path in snapshot.receive(&names).unwrap() {
            assert!(path.starts_with(dir.path()), "{}", path.display());
        }
    }
}
