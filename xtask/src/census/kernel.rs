//! Kernel resources: cgroups, mounts, loop devices, network links, firewall tables. Called by `census` and `sweep`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Depth of the search, which allows for the cgroups of an init system above sandboxd's.
const CGROUP_DEPTH: usize = 8;

/// A line of /proc/self/mountinfo.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: String,
    kind: String,
    source: String,
}

fn mount_table() -> Result<Vec<Mount>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("the mount table is not readable")?;
    Ok(text.lines().filter_map(parse_mount).collect())
}

/// `36 35 98:0 /root /point options [optional…] - type source options`
fn parse_mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut back = back.split(' ');
    let point = front.split(' ').nth(4)?.replace("\\040", " ");
    Some(Mount { point, kind: back.next()?.to_owned(), source: back.next()?.to_owned() })
}

impl Mount {
    fn is_ours(&self) -> bool {
        self.kind == "nsfs" || self.point.contains("sandboxd") || self.source.contains("sandboxd")
    }
}

/// Mount points of sandboxd, later ones last.
pub fn mounts() -> Result<Vec<String>> {
    Ok(mount_table()?.into_iter().filter(Mount::is_ours).map(|m| m.point).collect())
}

/// Cgroups of sandboxd in every hierarchy, parents before their children.
pub fn cgroups() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for mount in mount_table()?.iter().filter(|m| m.kind == "cgroup" || m.kind == "cgroup2") {
        walk(Path::new(&mount.point), Ours::No, CGROUP_DEPTH, &mut found);
    }
    found.sort();
    found.dedup();
    Ok(found)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ours {
    Yes,
    No,
}

/// A folder with sandboxd's prefix, and everything below it, belongs to sandboxd.
fn walk(folder: &Path, ours: Ours, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        let named = entry.file_name().to_string_lossy().starts_with("sandboxd");
        let ours = if named { Ours::Yes } else { ours };
        if ours == Ours::Yes {
            found.push(entry.path().display().to_string());
        }
        if depth > 0 {
            walk(&entry.path(), ours, depth - 1, found);
        }
    }
}

/// Loop devices in use, with their backing files.
pub fn loop_devices() -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/block").context("/sys/block is not readable")?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("loop")
            && let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file"))
        {
            found.push((format!("/dev/{name} on {}", file.trim_end()), String::new()));
        }
    }
    Ok(found)
}

/// The files under loop devices.
pub fn backing_files() -> Result<Vec<PathBuf>> {
    let devices = loop_devices()?.into_iter();
    Ok(devices.filter_map(|(name, _)| Some(PathBuf::from(name.split_once(" on ")?.1))).collect())
}

/// Network links of this namespace.
pub fn links() -> Result<Vec<String>> {
    let entries = fs::read_dir("/sys/class/net").context("/sys/class/net is not readable")?;
    Ok(entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect())
}

/// Firewall tables of this namespace; none if `nft` is not installed, because sandboxd creates them with it.
pub fn nft_tables() -> Result<Vec<String>> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&folders).any(|f: PathBuf| f.join("nft").exists()) {
        return Ok(Vec::new());
    }
    let output = Command::new("nft").args(["list", "tables"]).output().context("could not start nft")?;
    if !output.status.success() {
        bail!("nft list tables: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|l| l.trim_start_matches("table ").to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_parsed() {
        let line = "36 35 98:0 / /run/a\\040sandboxd rw,noatime shared:1 master:2 - ext4 /dev/loop3 rw";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.point, "/run/a sandboxd");
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext4", "/dev/loop3"));
        assert!(mount.is_ours());
        assert!(!parse_mount("36 35 98:0 / / rw - ext4 /dev/sda rw").unwrap().is_ours());
        assert!(parse_mount("36 35 0:4 net:[1] /run/x rw - nsfs nsfs rw").unwrap().is_ours());
        assert_eq!(parse_mount("nonsense"), None);
    }

    #[test]
    fn cgroups_with_the_prefix_and_their_children_are_found() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["a/sandboxd-test/sb_1", "sandboxd", "other/b"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let mut found = Vec::new();
        walk(root.path(), Ours::No, 4, &mut found);
        found.sort();
        let expected = ["a/sandboxd-test", "a/sandboxd-test/sb_1", "sandboxd"];
        assert_eq!(found, expected.map(|p| root.path().join(p).display().to_string()));
    }

    #[test]
    fn the_loopback_link_is_listed() {
        assert!(links().unwrap().contains(&"lo".to_owned()));
    }
}
