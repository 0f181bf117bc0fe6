//! Sandboxes of other data directories than those that `sweep` cleans: of a service with a configuration of its own, or of the tests
//! of another checkout. Called by `sweep`, which leaves them alone and names them, with what belongs to them: their processes, cgroups,
//! mounts and directories. Reading the loop devices and processes can fail; nothing is changed here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::processes::{HostProcess, SANDBOX_PREFIX};
use super::{disk, kernel};

/// The directory of the disks in a data directory, and that of the sockets in a run directory.
const SANDBOXES: &str = "sandboxes";

/// The sandboxes of other data directories. A sandbox has a loop device on its disk as long as it is on this machine.
#[derive(Debug, Default)]
pub struct Foreign {
    data_dir_of: BTreeMap<String, PathBuf>,
    run_dirs: Vec<PathBuf>,
}

impl Foreign {
    /// Looks for sandboxes of other data directories.
    pub fn find() -> Result<Self> {
        let here = std::env::current_dir()?;
        let is_own = |path: &Path| disk::is_in_root(path) || path.starts_with(&here);
        Ok(Self::of(&kernel::backing_files()?, is_own).with_run_dirs(&disk::roots()))
    }

    fn of(disks: &[PathBuf], is_own: impl Fn(&Path) -> bool) -> Self {
        let foreign = disks.iter().filter(|path| !is_own(path)).filter_map(|path| sandbox_at(path));
        Self { data_dir_of: foreign.collect(), run_dirs: Vec::new() }
    }

    /// The directories among `roots` that hold the sockets of these sandboxes.
    fn with_run_dirs(mut self, roots: &[PathBuf]) -> Self {
        let holds =
            |root: &&PathBuf| self.data_dir_of.keys().any(|id| root.join(SANDBOXES).join(id).exists());
        self.run_dirs = roots.iter().filter(holds).cloned().collect();
        self
    }

    /// Whether the process is in one of these sandboxes.
    pub fn has_process(&self, process: &HostProcess) -> bool {
        process.sandbox.as_ref().is_some_and(|id| self.data_dir_of.contains_key(id))
    }

    /// Whether a file, a mount or a cgroup belongs to one of these sandboxes.
    pub fn has_path(&self, path: &Path) -> bool {
        let named = path.components().filter_map(|part| part.as_os_str().to_str());
        let mut dirs = self.data_dir_of.values().chain(&self.run_dirs);
        named.into_iter().any(|part| self.data_dir_of.contains_key(part))
            || dirs.any(|dir| path.starts_with(dir))
    }

    /// Whether a cgroup belongs to one of these sandboxes or contains such a cgroup.
    pub fn has_cgroup(&self, cgroup: &str, all: &[String]) -> bool {
        let below = all.iter().filter(|other| Path::new(other).starts_with(cgroup));
        below.into_iter().any(|other| self.has_path(Path::new(other)))
    }

    /// A line for each data directory, with its sandboxes and their processes.
    pub fn report(&self, processes: &[HostProcess]) -> Vec<String> {
        let dirs: BTreeSet<&PathBuf> = self.data_dir_of.values().collect();
        let line = |dir: &PathBuf| {
            let ids = self.data_dir_of.iter().filter(|(_, data)| *data == dir).map(|(id, _)| id);
            let sandboxes: Vec<String> = ids.map(|id| format!("{id} ({})", pids(id, processes))).collect();
            format!(
                "left alone {} of the data directory {2}: {1}; to remove them, start 'sandboxd serve --data-dir {2}' and terminate them",
                if sandboxes.len() == 1 {
                    "a sandbox".to_owned()
                } else {
                    format!("{} sandboxes", sandboxes.len())
                },
                sandboxes.join(", "),
                dir.display(),
            )
        };
        dirs.into_iter().map(line).collect()
    }
}

/// The id and the data directory of the sandbox whose disk is at `DATA/sandboxes/ID/disk.img`.
fn sandbox_at(path: &Path) -> Option<(String, PathBuf)> {
    let dir = path.parent()?;
    let id = dir.file_name()?.to_str()?;
    let sandboxes = dir.parent()?;
    let is_sandbox = id.starts_with(SANDBOX_PREFIX) && sandboxes.ends_with(SANDBOXES);
    is_sandbox.then_some((id.to_owned(), sandboxes.parent()?.to_owned()))
}

fn pids(id: &str, processes: &[HostProcess]) -> String {
    let inside = processes.iter().filter(|process| process.sandbox.as_deref() == Some(id));
    let words: Vec<String> = inside.map(|process| format!("{} {}", process.pid, process.name)).collect();
    if words.is_empty() { "no processes".to_owned() } else { format!("processes {}", words.join(", ")) }
}

/// The processes of a cgroup, for the message when it cannot be removed.
pub fn processes_in(cgroup: &Path) -> String {
    let pids = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let name = |pid: &str| match pid {
        // The kernel shows a process of another PID namespace so.
        "0" => "one of another PID namespace".to_owned(),
        pid => {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{pid} {}", name.trim_end())
        }
    };
    pids.lines().map(name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign() -> Foreign {
        let disks = [
            "/srv/data/sandboxes/sb_a/disk.img",
            "/srv/data/sandboxes/sb_b/disk.img",
            "/var/lib/sandboxd/sandboxes/sb_own/disk.img",
            "/srv/data/snapshots/snap_a/disk.img",
            "/srv/some.img",
        ];
        Foreign::of(&disks.map(PathBuf::from), disk::is_in_root)
    }

    fn process(pid: u32, sandbox: Option<&str>) -> HostProcess {
        HostProcess {
            pid,
            started: 1,
            name: "sandbox-agent".into(),
            program: "sandbox-agent".into(),
            contained: true,
            sandbox: sandbox.map(str::to_owned),
        }
    }

    #[test]
    fn sandboxes_are_foreign_by_the_place_of_their_disk() {
        let ids: Vec<_> = foreign().data_dir_of.into_iter().collect();
        let expected = ["sb_a", "sb_b"].map(|id| (id.to_owned(), PathBuf::from("/srv/data")));
        assert_eq!(ids, expected);
        assert!(
            !disk::is_in_root(Path::new("/var/lib/other")) && !disk::is_in_root(Path::new("/srv/sandboxd"))
        );
    }

    #[test]
    fn what_belongs_to_them_is_recognized() {
        let root = tempfile::tempdir().unwrap();
        let (foreign_run, own_run) = (root.path().join("sandboxd-1"), root.path().join("sandboxd"));
        fs::create_dir_all(foreign_run.join("sandboxes/sb_a")).unwrap();
        fs::create_dir_all(own_run.join("sandboxes/sb_own")).unwrap();
        let foreign = foreign().with_run_dirs(&[foreign_run.clone(), own_run.clone()]);
        assert!(foreign.has_process(&process(7, Some("sb_a"))));
        assert!(!foreign.has_process(&process(7, Some("sb_own"))) && !foreign.has_process(&process(7, None)));
        assert!(
            foreign.has_path(&foreign_run.join("lxcfs"))
                && foreign.has_path(Path::new("/srv/data/snapshots"))
        );
        assert!(!foreign.has_path(&own_run) && !foreign.has_path(Path::new("/srv")));
        let cgroups =
            ["/c/sandboxd", "/c/sandboxd/sb_a", "/c/sandboxd/sb_own", "/c/sandboxd-2"].map(str::to_owned);
        let kept: Vec<_> = cgroups.iter().filter(|cgroup| foreign.has_cgroup(cgroup, &cgroups)).collect();
        assert_eq!(kept, ["/c/sandboxd", "/c/sandboxd/sb_a"]);
    }

    #[test]
    fn they_are_named_with_their_processes() {
        let report = foreign().report(&[process(7, Some("sb_a")), process(8, Some("sb_own"))]);
        let begin = "left alone 2 sandboxes of the data directory /srv/data: sb_a (processes 7 sandbox-agent), sb_b (no processes); ";
        assert!(report.len() == 1 && report[0].starts_with(begin), "{report:?}");
    }
}
