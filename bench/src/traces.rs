//! The resources of a sandbox on its host, to detect when all of them are released.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::SandboxId;
use driver::Presence;
use e2e::Rig;

const CGROUPS: &str = "/sys/fs/cgroup";
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The host resources of one running sandbox.
#[derive(Debug)]
pub struct Traces {
    id: SandboxId,
    paths: Vec<PathBuf>,
    pids: Vec<String>,
    backing_file: Option<PathBuf>,
}

impl Traces {
    pub fn of(rig: &Rig, id: &SandboxId) -> Result<Self> {
        let name = id.as_str();
        let mut paths = vec![
            rig.data.join("sandboxes").join(name),
            rig.run.join("sandboxes").join(name),
            rig.run.join("runtime").join(name),
        ];
        let cgroups: Vec<PathBuf> =
            parents(rig).into_iter().map(|dir| dir.join(name)).filter(|dir| dir.exists()).collect();
        ensure!(!cgroups.is_empty(), "{id} has no cgroup");
        paths.extend(cgroups);
        let backing_file = loop_devices().into_iter().find(|file| file_contains(file, name));
        ensure!(backing_file.is_some(), "{id} has no loop device");
        Ok(Self { id: id.clone(), paths, pids: pids(rig, id), backing_file })
    }

    /// The resources that still exist. Zombies count until the host's init has reaped them.
    fn left(&self) -> Vec<String> {
        let paths = self.paths.iter().filter(|path| path.exists()).map(|path| path.display().to_string());
        let processes =
            self.pids.iter().filter(|pid| has_process_entry(pid)).map(|pid| format!("process {pid}"));
        let device = self.backing_file.iter().filter(|file| file_contains(file, self.id.as_str()));
        paths.chain(processes).chain(device.map(|file| file.display().to_string())).collect()
    }

    /// Waits until all resources are released.
    pub async fn wait_for_removal(&self, rig: &Rig) -> Result<()> {
        let begin = Instant::now();
        while !self.left().is_empty() || rig.driver.inspect(&self.id).await? != Presence::Absent {
            ensure!(begin.elapsed() < TIMEOUT, "{} has left {:?}", self.id, self.left());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

/// The ids of the processes of a sandbox.
pub fn pids(rig: &Rig, id: &SandboxId) -> Vec<String> {
    let mut pids: Vec<String> =
        parents(rig).iter().flat_map(|dir| processes(&dir.join(id.as_str()))).collect();
    pids.sort();
    pids.dedup();
    pids
}

/// All resources of a rig's sandboxes on the host.
pub fn all_resources(rig: &Rig) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let dirs = [rig.data.join("sandboxes"), rig.run.join("sandboxes"), rig.run.join("runtime")];
    for dir in dirs.into_iter().chain(parents(rig)) {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // A cgroup contains files; a directory in it belongs to a sandbox.
        found.extend(entries.iter().filter(|path| path.is_dir()).map(|path| path.display().to_string()));
    }
    found.extend(
        loop_devices()
            .iter()
            .filter(|file| file_contains(file, &rig.name))
            .map(|file| file.display().to_string()),
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading our mounts")?;
    found.extend(mounts.lines().filter(|line| line.contains(&rig.name)).map(|line| format!("mount {line}")));
    Ok(found)
}

fn parents(rig: &Rig) -> Vec<PathBuf> {
    let root = Path::new(CGROUPS);
    let hierarchies = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(root.to_owned())
        .chain(hierarchies)
        .map(|dir| dir.join(&rig.name))
        .filter(|dir| dir.exists())
        .collect()
}

fn processes(cgroup: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_to_string(cgroup.join("cgroup.procs"))
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    for entry in fs::read_dir(cgroup).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(processes(&entry.path()));
        }
    }
    found
}

/// Zombies count, because they hold a process id.
fn has_process_entry(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

/// The files with the backing file of each loop device; a free device has none.
fn loop_devices() -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.map(|entry| entry.path().join("loop/backing_file")).filter(|file| file.exists()).collect()
}

fn file_contains(file: &Path, text: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|content| content.contains(text))
}
