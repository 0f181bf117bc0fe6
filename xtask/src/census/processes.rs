//! Processes and the namespaces they hold, from /proc. Called by `census` and `sweep`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Programs that run only because of sandboxd: its own, and those that it starts.
const PROGRAMS: [&str; 10] = [
    "sandboxd",
    "sandbox-agent",
    "sandbox-launcher",
    "sbx",
    "runc",
    "runsc",
    "crun",
    "bwrap",
    "docker-registry",
    "mmdebstrap",
];
/// Begins the id of a sandbox, which is the name of its cgroup and of its directories.
pub const SANDBOX_PREFIX: &str = "sb_";
const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// A process or a zombie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    pub pid: u32,
    /// Start time in clock ticks since boot; unique together with the pid.
    pub started: u64,
    /// The kernel's name for it, at most 15 bytes, kept when it is a zombie.
    pub name: String,
    /// File name of its program; empty if it cannot be read.
    pub program: String,
    /// Whether it is in a cgroup of sandboxd.
    pub contained: bool,
    /// The sandbox whose cgroup it is in.
    pub sandbox: Option<String>,
}

/// All processes.
pub fn all() -> Result<Vec<HostProcess>> {
    let pids = fs::read_dir("/proc").context("/proc is not readable")?.flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(read).collect())
}

/// One process, or `None` if it has ended.
fn read(pid: u32) -> Option<HostProcess> {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    let (name, started) = parse_stat(&fs::read_to_string(folder.join("stat")).ok()?)?;
    let exe = fs::read_link(folder.join("exe")).unwrap_or_default();
    let program = exe
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
        .trim_end_matches(" (deleted)")
        .to_owned();
    let cgroups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
    let (contained, sandbox) = (names_our_cgroup(&cgroups), sandbox_of(&cgroups));
    Some(HostProcess { pid, started, name, program, contained, sandbox })
}

/// Name and start of `PID (NAME) STATE …`; the name may hold anything, brackets and blanks too.
fn parse_stat(stat: &str) -> Option<(String, u64)> {
    let (front, back) = stat.rsplit_once(')')?;
    let name = front.split_once('(')?.1;
    Some((name.to_owned(), back.split_whitespace().nth(19)?.parse().ok()?))
}

/// Whether one of the lines `ID:CONTROLLERS:PATH` has a folder with sandboxd's prefix.
fn names_our_cgroup(text: &str) -> bool {
    let paths = text.lines().filter_map(|l| l.splitn(3, ':').nth(2));
    paths.flat_map(|p| p.split('/')).any(|folder| folder.starts_with("sandboxd"))
}

/// The sandbox that one of the lines names, in a folder of sandboxd.
fn sandbox_of(text: &str) -> Option<String> {
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter_map(|path| path.split_once("/sandboxd")).find_map(|(_, below)| {
        below.split('/').find(|folder| folder.starts_with(SANDBOX_PREFIX)).map(str::to_owned)
    })
}

impl HostProcess {
    /// Whether it belongs to this project.
    pub fn is_ours(&self) -> bool {
        let known =
            |program: &&str| *program == self.program || (self.program.is_empty() && *program == self.name);
        self.contained || PROGRAMS.iter().any(known)
    }
}

/// The processes of sandboxd.
pub fn ours() -> Result<Vec<(String, String)>> {
    let ours = all()?.into_iter().filter(|p| p.pid != std::process::id() && p.is_ours());
    Ok(ours.map(|p| (format!("{} since {}", p.pid, p.started), p.name)).collect())
}

/// All namespaces with processes, with the pid of one of them, and those pinned by name.
pub fn namespaces() -> Result<Vec<(String, String)>> {
    let mut found = BTreeMap::new();
    for process in all()? {
        for kind in NAMESPACES {
            // Gone or a zombie: it holds none.
            if let Ok(link) = fs::read_link(format!("/proc/{}/ns/{kind}", process.pid)) {
                let words = format!("held by {} ({})", process.pid, process.name);
                found.entry(link.display().to_string()).or_insert(words);
            }
        }
    }
    for entry in fs::read_dir(Path::new("/run/netns")).into_iter().flatten().flatten() {
        found.insert(format!("/run/netns/{}", entry.file_name().display()), String::new());
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_brackets_and_blanks() {
        let fields = (3..22).map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
        assert_eq!(parse_stat(&format!("7 (a) b (c) {fields} 4711 0")), Some(("a) b (c".to_owned(), 4711)));
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn cgroups_are_recognized_by_their_prefix() {
        assert!(names_our_cgroup("4:memory:/sandboxd/sb_1\n"));
        assert!(names_our_cgroup("0::/system.slice/sandboxd.service\n"));
        assert!(!names_our_cgroup("0::/user/my-sandboxd\n4:memory:/\n"));
    }

    #[test]
    fn the_sandbox_of_a_process_is_found() {
        assert_eq!(sandbox_of("4:memory:/sandboxd-0a1b2c3d/sb_1/x\n"), Some("sb_1".to_owned()));
        assert_eq!(sandbox_of("0::/\n4:cpu:/system.slice/sandboxd/sb_2\n"), Some("sb_2".to_owned()));
        assert_eq!(sandbox_of("4:memory:/sandboxd\n0::/other/sb_1\n"), None);
    }

    #[test]
    fn this_process_is_found_and_is_not_ours() {
        let all = all().unwrap();
        let this = all.iter().find(|p| p.pid == std::process::id()).unwrap();
        assert!(this.program.starts_with("xtask"));
        assert!(!this.program.is_empty() && !HostProcess { contained: false, ..this.clone() }.is_ours());
    }

    #[test]
    fn running_and_dead_programs_of_sandboxd_are_recognized() {
        let process = |program: &str, name: &str| HostProcess {
            pid: 1,
            started: 1,
            name: name.into(),
            program: program.into(),
            contained: false,
            sandbox: None,
        };
        assert!(process("sandboxd", "tokio-runtime-w").is_ours());
        assert!(process("", "sandbox-agent").is_ours());
        assert!(!process("bash", "sandboxd").is_ours());
        assert!(HostProcess { contained: true, ..process("sleep", "sleep") }.is_ours());
    }
}
