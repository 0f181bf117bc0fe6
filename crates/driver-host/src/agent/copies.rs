//! Copies of the agent for sandboxes whose processes can be stored. A stored process continues with the program file that it had, so
//! an upgrade of the daemon must not replace it.
//!
//! All accounts share the directory of the copies, so a copy is named by the SHA-256 of its content and never changes. A copy from
//! another host gets the name of its content here, whatever that host calls it. Copies of earlier versions have other names.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::paths::{agents_dir, bundles_dir, sandboxes_dir, snapshots_dir};
use crate::settings::Settings;

/// File in the directory of stored processes with the name of their agent.
pub const AGENT_NAME: &str = "agent";

/// Ends the names of agents that can continue as those of another sandbox. Copies of earlier versions lack it.
const ADOPTS: &str = ".adopts";
const HASH_DIGITS: usize = 64;
/// Many times the size of an agent.
const AGENT_BYTES: u64 = 64 << 20;

/// Whether the stored processes of an agent with this name can continue in another sandbox.
pub fn can_be_copied(name: &str) -> bool {
    name.ends_with(ADOPTS)
}

fn hash_of(program: &[u8]) -> String {
    Sha256::digest(program).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

/// Copies the current agent, unless that was done before, and removes copies that no sandbox needs. Returns the copy's name.
pub fn install_copy(settings: &Settings) -> io::Result<String> {
    let program = fs::read(&settings.agent)?;
    let name = format!("{}{ADOPTS}", hash_of(&program));
    let dir = agents_dir(settings);
    fs::create_dir_all(&dir)?;
    let copy = dir.join(&name);
    if fs::read(&copy).ok().as_ref() != Some(&program) {
        let unfinished = dir.join("new");
        let written = fs::write(&unfinished, &program).and_then(|()| make_executable(&unfinished));
        written.and_then(|()| fs::rename(&unfinished, &copy)).inspect_err(|_| {
            // A part takes space of a disk that may be full.
            let _ = fs::remove_file(&unfinished);
        })?;
        base::sync_dir(&dir)?;
    }
    remove_unused(settings, &name)?;
    Ok(name)
}

/// Takes over the agent that stored processes from another host run, which calls it `name`. Returns its name on this host. An existing
/// copy is never replaced.
pub fn adopt_copy(settings: &Settings, file: &Path, name: &str) -> io::Result<String> {
    let bytes = fs::metadata(file)?.len();
    if bytes > AGENT_BYTES {
        return Err(io::Error::other(format!(
            "the agent has {bytes} bytes; at most {AGENT_BYTES} are allowed"
        )));
    }
    let program = fs::read(file)?;
    let hash = hash_of(&program);
    let (stem, suffix) = name.strip_suffix(ADOPTS).map_or((name, ""), |stem| (stem, ADOPTS));
    if stem.len() == HASH_DIGITS && stem != hash {
        return Err(io::Error::other(
            "the agent is not the one that the stored processes run: its content has another hash",
        ));
    }
    let name = format!("{hash}{suffix}");
    let dir = agents_dir(settings);
    fs::create_dir_all(&dir)?;
    let copy = dir.join(&name);
    if copy.exists() {
        if fs::read(&copy)? != program {
            return Err(io::Error::other(format!(
                "{} is damaged: its content has another hash",
                copy.display()
            )));
        }
        fs::remove_file(file)?;
        return Ok(name);
    }
    make_executable(file)?;
    fs::rename(file, copy)?;
    base::sync_dir(&dir)?;
    Ok(name)
}

fn make_executable(file: &Path) -> io::Result<()> {
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))?;
    File::open(file)?.sync_all()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::DiskRates;

    fn settings(dir: &Path) -> Settings {
        for name in ["sandboxes", "snapshots", "run/sandboxes"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        fs::write(dir.join("agent"), "the agent").unwrap();
        Settings {
            agent: dir.join("agent"),
            data_dir: dir.to_owned(),
            run_dir: dir.join("run"),
            cgroup_parent: String::new(),
            uid_base: 0,
            pids_max: 0,
            disk_rates: DiskRates::default(),
            memory_max_mb: None,
            lxcfs: None,
            minimum_isolation: api::Isolation::Container,
            resolver: None,
        }
    }

    #[test]
    fn a_forged_agent_never_takes_the_place_of_another() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(dir.path());
        let own = install_copy(&settings).unwrap();
        assert_eq!(own, format!("{}.adopts", hash_of(b"the agent")));
        let received = dir.path().join("received");
        let adopt = |content: &str, name: &str| {
            fs::write(&received, content).unwrap();
            adopt_copy(&settings, &received, name)
        };
        // Under the name of this host's agent, and of the next one, of which an attacker knows the hash.
        let next = format!("{}.adopts", hash_of(b"the next agent"));
        for name in [&own, &next] {
            let refused = adopt("forged", name).unwrap_err().to_string();
            assert!(refused.contains("another hash"), "{refused}");
        }
        // The names of earlier versions say nothing about the content: it gets its own.
        let forged = format!("{}.adopts", hash_of(b"forged"));
        for name in ["0123456789abcdef.adopts", "../../x.adopts"] {
            assert_eq!(adopt("forged", name).unwrap(), forged);
        }
        assert_eq!(adopt("the agent", &own).unwrap(), own);
        assert_eq!(adopt("the next agent", &next).unwrap(), next);
        assert_eq!(adopt("older", "0123456789abcdef").unwrap(), hash_of(b"older"));
        let mut names: Vec<_> =
            fs::read_dir(agents_dir(&settings)).unwrap().map(|it| it.unwrap().file_name()).collect();
        names.sort();
        let mut expected = [own.clone(), forged, next, hash_of(b"older")].map(std::ffi::OsString::from);
        expected.sort();
        assert_eq!(names, expected);
        assert_eq!(fs::read(path(&settings, &own)).unwrap(), b"the agent");
        // One that is damaged on this host is not replaced either: sandboxes may run it.
        fs::write(path(&settings, &own), "damaged").unwrap();
        assert!(adopt("the agent", &own).unwrap_err().to_string().contains("damaged"));
        assert_eq!(fs::read(path(&settings, &own)).unwrap(), b"damaged");
    }
}
