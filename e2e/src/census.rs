//! Compares the resources of a rig on the host with the expected ones, read from the kernel, not from driver or engine.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use api::SandboxId;

use crate::place::Place;

/// Time for background removal.
const PATIENCE: Duration = Duration::from_secs(8);

/// The expected resources.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Sandboxes with processes, frozen or not.
    pub alive: BTreeSet<SandboxId>,
    /// Sandboxes that have only a disk.
    pub stopped: BTreeSet<SandboxId>,
    /// The process that runs the engine, where that is another than this one.
    pub daemon: Option<u32>,
}

/// Waits until the host has exactly the expected resources; returns the differences that remain.
pub async fn settled(place: &Place, expected: &Expected) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let strays = strays(place, expected);
        if strays.is_empty() || begin.elapsed() > PATIENCE {
            return strays;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Unexpected and missing resources.
pub fn strays(place: &Place, expected: &Expected) -> Vec<String> {
    let alive: BTreeSet<String> = expected.alive.iter().map(ToString::to_string).collect();
    let disks: BTreeSet<String> = expected.alive.union(&expected.stopped).map(ToString::to_string).collect();
    let mut strays = Vec::new();
    differences("disk", &names(&place.data.join("sandboxes")), &disks, &mut strays);
    differences("bundle", &names(&place.run.join("sandboxes")), &alive, &mut strays);
    differences("runtime state", &names(&place.run.join("runtime")), &alive, &mut strays);
    differences("cgroup", &cgroups(&place.name), &alive, &mut strays);
    differences("loop device", &loop_devices(place), &alive, &mut strays);
    let unfinished = names(&place.data.join("templates")).into_iter().filter(|name| name.starts_with("new-"));
    strays.extend(unfinished.map(|name| format!("unfinished template {name}")));
    for disk in &disks {
        let files = names(&place.data.join("sandboxes").join(disk));
        if !expected.stopped.iter().any(|id| id.as_str() == disk) && files != ["disk.img".to_owned()].into() {
            strays.push(format!("disk of {disk} consists of {files:?}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    strays
        .extend(mounts.lines().filter(|line| line.contains(&place.name)).map(|line| format!("mount {line}")));
    strays.extend(processes(place, &alive, expected.daemon));
    strays.extend(network(place, alive.len()));
    strays
}

/// A link for each sandbox that has processes, and the firewall's word of each. Nothing where the place has no network: its
/// gateway's link says whose it is.
fn network(place: &Place, alive: usize) -> Vec<String> {
    let all = Path::new("/sys/class/net");
    let is_ours = |link: &String| {
        fs::read_to_string(all.join(link).join("ifalias")).is_ok_and(|alias| alias.contains(&place.name))
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
        strays.push(format!("{alive} sandboxes have processes, and there are the links {links:?}"));
    }
    if listed.as_ref().ok() != Some(&alive) {
        strays.push(format!("{alive} sandboxes have processes, and the table {table} knows {listed:?}"));
    }
    strays
}

fn differences(kind: &str, found: &BTreeSet<String>, wanted: &BTreeSet<String>, strays: &mut Vec<String>) {
    strays.extend(found.difference(wanted).map(|name| format!("{kind} {name} should not be there")));
    strays.extend(wanted.difference(found).map(|name| format!("{kind} {name} is missing")));
}

fn names(dir: &Path) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir(dir) else { return BTreeSet::new() };
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Names below the rig's parent cgroup, in whatever hierarchy.
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

/// The sandboxes whose disks stand behind a loop device.
fn loop_devices(place: &Place) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for device in names(Path::new("/sys/block")).into_iter().filter(|name| name.starts_with("loop")) {
        let file = Path::new("/sys/block").join(&device).join("loop/backing_file");
        let Ok(backing) = fs::read_to_string(file) else { continue };
        if let Some((_, below)) = backing.split_once(&format!("/{}/sandboxes/", place.name)) {
            found.insert(below.split('/').next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// Processes that work for the rig and belong to no sandbox that should be there.
fn processes(place: &Place, alive: &BTreeSet<String>, daemon: Option<u32>) -> Vec<String> {
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
        // A process that nobody has waited for holds nothing but its number.
        if status.is_empty() || field("State:").starts_with(['Z', 'X']) {
            continue;
        }
        let cgroup = String::from_utf8_lossy(&read("cgroup")).into_owned();
        let command = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let uid: u32 = field("Uid:").split_whitespace().next().and_then(|uid| uid.parse().ok()).unwrap_or(0);
        let ours = |id: &String| cgroup.contains(&format!("/{}/{id}", place.name));
        // Another rig may have the same range of user ids; then its name is in the path.
        let in_range = (place.uid_base..place.uid_base + place.user_ids()).contains(&uid);
        let homeless = in_range && !cgroup.contains("/sandboxd-");
        let working = command.contains(&place.name) || cgroup.contains(&format!("/{}/", place.name));
        if homeless || (working && !alive.iter().any(ours)) {
            strays.push(format!("process {pid} {command:?} of user {uid} in {:?}", cgroup.lines().last()));
        }
    }
    strays
}
