//! Copies of the agent for sandboxes whose processes can be stored. A stored process continues with the program file that it had, so
//! an upgrade of the daemon must not replace it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::paths::{agents_dir, bundles_dir, sandboxes_dir, snapshots_dir};
use crate::settings::Settings;

/// File in the directory of stored processes with the name of their agent.
pub const AGENT_NAME: &str = "agent";

/// Ends the names of agents that can continue as those of another sandbox. Copies of earlier versions lack it.
const ADOPTS: &str = ".adopts";

/// Whether the stored processes of an agent with this name can continue in another sandbox.
pub fn can_be_copied(name: &str) -> bool {
    name.ends_with(ADOPTS)
}

/// Copies the current agent, unless that was done before, and removes copies that no sandbox needs. Returns the copy's name.
pub fn install_copy(settings: &Settings) -> io::Result<String> {
    let program = fs::read(&settings.agent)?;
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    let name = format!("{:016x}{ADOPTS}", hasher.finish());
    let dir = agents_dir(settings);
    fs::create_dir_all(&dir)?;
    let copy = dir.join(&name);
    if fs::read(&copy).ok().as_ref() != Some(&program) {
        let unfinished = dir.join("new");
        fs::write(&unfinished, &program)?;
        fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755))?;
        File::open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, &copy)?;
        disk::sync_dir(&dir)?;
    }
    remove_unused(settings, &name)?;
    Ok(name)
}

/// Takes over a copy of the agent from another host, if this host lacks it.
pub fn adopt_copy(settings: &Settings, file: &Path, name: &str) -> io::Result<()> {
    let is_name = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'.');
    if !is_name || name.starts_with('.') {
        return Err(io::Error::other("the name of an agent is malformed"));
    }
    let dir = agents_dir(settings);
    fs::create_dir_all(&dir)?;
    let copy = dir.join(name);
    if copy.exists() {
        return fs::remove_file(file);
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    File::open(file)?.sync_all()?;
    fs::rename(file, copy)?;
    disk::sync_dir(&dir)
}

fn remove_unused(settings: &Settings, current: &str) -> io::Result<()> {
    let mut used: HashSet<String> = HashSet::from([current.to_owned()]);
    for (dir, file) in [
        (bundles_dir(settings), "agent.name"),
        (sandboxes_dir(settings), "memory/agent"),
        (sandboxes_dir(settings), "memory.used/agent"),
        (sandboxes_dir(settings), "memory.next/agent"),
        (snapshots_dir(settings), "memory/agent"),
    ] {
        for entry in fs::read_dir(dir)? {
            used.extend(fs::read_to_string(entry?.path().join(file)));
        }
    }
    for entry in fs::read_dir(agents_dir(settings))? {
        let entry = entry?;
        if entry.file_name().to_str().is_none_or(|name| !used.contains(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// The copy with a name.
pub fn path(settings: &Settings, name: &str) -> PathBuf {
    // Names are made by `install_copy`; anything else must not lead out of the directory.
    agents_dir(settings).join(Path::new(name).file_name().unwrap_or_default())
}
