//! Compares the resources of a rig on the host with the expected ones, read from the kernel, not from driver or engine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use api::{SandboxId, SnapshotId};

use crate::layout::RigLayout;

/// Time for background removal.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The expected resources.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Sandboxes with processes, frozen or not.
    pub alive: BTreeSet<SandboxId>,
    /// Sandboxes that have only a disk.
    pub stopped: BTreeSet<SandboxId>,
    /// Snapshots whose disks are needed.
    pub snapshots: BTreeSet<SnapshotId>,
    /// Those of them with processes.
    pub with_memory: BTreeSet<SnapshotId>,
    /// The process that runs the engine, if it is not this one.
    pub daemon: Option<u32>,
}

/// Waits until the host has exactly the expected resources; returns the differences that remain.
pub async fn wait_for_resources(layout: &RigLayout, expected: &Expected) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let strays = strays(layout, expected);
        if strays.is_empty() || begin.elapsed() > TIMEOUT {
            return strays;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Unexpected and missing resources.
pub fn strays(layout: &RigLayout, expected: &Expected) -> Vec<String> {
    let alive: BTreeSet<String> = expected.alive.iter().map(ToString::to_string).collect();
    let disks: BTreeSet<String> = expected.alive.union(&expected.stopped).map(ToString::to_string).collect();
    let mut strays = Vec::new();
    differences("disk", &names(&layout.data.join("sandboxes")), &disks, &mut strays);
    differences("bundle", &names(&layout.run.join("sandboxes")), &alive, &mut strays);
    // Only OCI runtimes have any. The names of gVisor's files contain the sandbox's.
    let states = names(&layout.run.join("runtime"));
    let orphans = states.iter().filter(|name| !alive.iter().any(|id| name.contains(id.as_str())));
    strays.extend(orphans.map(|name| format!("runtime state {name} is left over")));
    differences("cgroup", &cgroups(&layout.name), &alive, &mut strays);
    differences("loop device", &loop_devices(layout), &alive, &mut strays);
    let snapshots = expected.snapshots.iter().map(ToString::to_string).collect();
    differences("snapshot", &names(&layout.data.join("snapshots")), &snapshots, &mut strays);
    for snapshot in &snapshots {
        let files = names(&layout.data.join("snapshots").join(snapshot));
        let memory =
            expected.with_memory.iter().any(|id| id.as_str() == snapshot).then(|| "memory".to_owned());
        if files != [format!("{snapshot}.img")].into_iter().chain(memory).collect() {
            strays.push(format!("snapshot {snapshot} consists of {files:?}"));
        }
    }
    let kept: BTreeSet<String> =
        disks.iter().cloned().chain(expected.with_memory.iter().map(ToString::to_string)).collect();
    let executions = names(&layout.data.join("executions"));
    strays.extend(executions.difference(&kept).map(|name| format!("executions of {name} are left over")));
    let unfinished =
        names(&layout.data.join("templates")).into_iter().filter(|name| name.starts_with("new-"));
    strays.extend(unfinished.map(|name| format!("unfinished template {name}")));
    for disk in &disks {
        let files = names(&layout.data.join("sandboxes").join(disk));
        if !expected.stopped.iter().any(|id| id.as_str() == disk) && files != ["disk.img".to_owned()].into() {
            strays.push(format!("disk of {disk} consists of {files:?}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    strays.extend(
        mounts.lines().filter(|line| line.contains(&layout.name)).map(|line| format!("mount {line}")),
    );
    strays.extend(processes(layout, &alive, expected.daemon));
    strays.extend(network(layout, alive.len()));
    strays
}

/// Each sandbox with processes has a link and an element in the firewall's set. Returns nothing if the rig has no network, which
/// the alias of the gateway's link tells.
fn network(layout: &RigLayout, alive: usize) -> Vec<String> {
    let all = Path::new("/sys/class/net");
    let is_ours = |link: &String| {
        fs::read_to_string(all.join(link).join("ifalias")).is_ok_and(|alias| alias.contains(&layout.name))
    };
    let Some(gateway) = names(all).into_iter().find(|link| link.ends_with("-gw") && is_ours(link)) else {
        return Vec::new();
    };
    let prefix = gateway.trim_end_matches("gw");
    let links: Vec<String> =
        names(all).into_iter().filter(|link| link.starts_with(prefix) && *link != gateway).collect();
    let table = format!("sandboxd_{}", prefix.trim_start_matches("sb").trim_end_matches('-'));
    let listed = Command::new("nft").args(["list", "set", "inet", &table, "guests"]).output();
    let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).matches(prefix).count());
    let mut strays = Vec::new();
    if links.len() != alive {
        strays.push(format!("{alive} sandboxes have processes, but the links are {links:?}"));
    }
    if listed.as_ref().ok() != Some(&alive) {
        strays.push(format!("{alive} sandboxes have processes, but the table {table} lists {listed:?}"));
    }
    strays
}

fn differences(kind: &str, found: &BTreeSet<String>, wanted: &BTreeSet<String>, strays: &mut Vec<String>) {
    strays.extend(found.difference(wanted).map(|name| format!("{kind} {name} is unexpected")));
    strays.extend(wanted.difference(found).map(|name| format!("{kind} {name} is missing")));
}

fn names(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Names below the rig's parent cgroup, in all hierarchies.
fn cgroups(name: &str) -> BTreeSet<String> {
    let root = Path::new("/sys/fs/cgroup");
    let mut parents = vec![root.join(name)];
    parents.extend(names(root).into_iter().map(|hierarchy| root.join(hierarchy).join(name)));
    let mut found = BTreeSet::new();
    for parent in parents {
        let below = names(&parent).into_iter().filter(|entry| parent.join(entry).is_dir());
        found.extend(below);
    }
    found
}

/// The sandboxes whose disks are attached to a loop device.
fn loop_devices(layout: &RigLayout) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for device in names(Path::new("/sys/block")).into_iter().filter(|name| name.starts_with("loop")) {
        let file = Path::new("/sys/block").join(&device).join("loop/backing_file");
        let Ok(backing) = fs::read_to_string(file) else { continue };
        if let Some((_, below)) = backing.split_once(&format!("/{}/sandboxes/", layout.name)) {
            found.insert(below.split('/').next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// Processes of the rig that belong to no expected sandbox.
fn processes(layout: &RigLayout, alive: &BTreeSet<String>, daemon: Option<u32>) -> Vec<String> {
    let mut strays = Vec::new();
    for pid in names(Path::new("/proc")).into_iter().filter_map(|name| name.parse::<u32>().ok()) {
        if pid == std::process::id() || Some(pid) == daemon {
            continue;
        }
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let status = String::from_utf8_lossy(&read("status")).into_owned();
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        // A zombie holds no resource except its process id.
        if status.is_empty() || field("State:").starts_with(['Z', 'X']) {
            continue;
        }
        let cgroup = String::from_utf8_lossy(&read("cgroup")).into_owned();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let uid: u32 = field("Uid:").split_whitespace().next().and_then(|uid| uid.parse().ok()).unwrap_or(0);
        let ours = |id: &String| cgroup.contains(&format!("/{}/{id}", layout.name));
        // Another rig may use the same range of user ids; then the cgroup's path has that rig's name.
        let in_range = (layout.uid_base..layout.uid_base + layout.user_ids()).contains(&uid);
        let without_rig = in_range && !cgroup.contains("/sandboxd-");
        let working = command.contains(&layout.name) || cgroup.contains(&format!("/{}/", layout.name));
        if without_rig || (working && !alive.iter().any(ours)) {
            strays.push(format!("process {pid} {command:?} of user {uid} in {:?}", cgroup.lines().last()));
        }
    }
    strays
}
