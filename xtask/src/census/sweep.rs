//! Removes resources that runs and tests left on this machine: `./dev clean`. It refuses to run beside a running daemon. Sandboxes of
//! other data directories are left alone and named. Each step runs even if an earlier one failed; the command can be repeated.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::foreign::{Foreign, processes_in};
use super::processes::HostProcess;
use super::{disk, kernel, processes};

const KILL_TIMEOUT_MS: u64 = 5_000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Whether to remove the images and records in /var/lib.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    Keep,
    Remove,
}

pub fn run(data: Data) -> Result<ExitCode> {
    let all = processes::all()?;
    if all.iter().any(|p| p.pid == std::process::id() && p.contained) {
        bail!(
            "this shell is in a cgroup of sandboxd, whose processes would be killed; run it from another shell"
        );
    }
    if let Some(daemon) = all.iter().find(|p| p.program == "sandboxd") {
        bail!("sandboxd is running (process {}) and its sandboxes are in use; stop it first", daemon.pid);
    }
    let foreign = Foreign::find()?;
    let mut failures = Vec::new();
    end_processes(&foreign, &mut failures)?;
    remove_resources(&foreign, data, &mut failures)?;
    for line in foreign.report(&processes::all()?) {
        println!("clean: {line}");
    }
    for failure in &failures {
        println!("clean: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn remove_resources(foreign: &Foreign, data: Data, failures: &mut Vec<String>) -> Result<()> {
    let is_own = |path: &str| path.contains("sandboxd") && !foreign.has_path(Path::new(path));
    // In reverse order, because later mounts are on top.
    for point in kernel::mounts()?.iter().rev().filter(|point| is_own(point)) {
        step(failures, "unmounted", point, || command("umount", &["--lazy", point]));
    }
    for (name, _) in &kernel::loop_devices()? {
        let (device, file) = name.split_once(" on ").unwrap_or_default();
        if is_own(file) {
            step(failures, "detached", device, || command("losetup", &["--detach", device]));
        }
    }
    let deadline = Instant::now() + Duration::from_millis(KILL_TIMEOUT_MS);
    let cgroups = kernel::cgroups()?;
    for folder in cgroups.iter().rev().filter(|folder| !foreign.has_cgroup(folder, &cgroups)) {
        step(failures, "removed", folder, || remove_cgroup(Path::new(folder), deadline));
    }
    for path in disk::roots().iter().filter(|path| data == Data::Remove || !path.starts_with("/var/lib")) {
        if !foreign.has_path(path) {
            step(failures, "removed", &path.display().to_string(), || remove(path));
        }
    }
    Ok(())
}

fn step(failures: &mut Vec<String>, done: &str, what: &str, act: impl FnOnce() -> Result<()>) {
    match act() {
        Ok(()) => println!("clean: {done} {what}"),
        Err(error) => failures.push(format!("{what}: {error:#}")),
    }
}

/// Kills all processes in sandboxd's cgroups, frozen or not, and all agents, but no other processes of runc and none of other data
/// directories.
fn end_processes(foreign: &Foreign, failures: &mut Vec<String>) -> Result<()> {
    let cgroups = kernel::cgroups()?;
    for folder in cgroups.iter().filter(|folder| !foreign.has_cgroup(folder, &cgroups)) {
        let state = Path::new(folder).join("freezer.state");
        if state.exists() {
            step(failures, "thawed", folder, || Ok(fs::write(&state, "THAWED")?));
        }
    }
    let leftover: Vec<HostProcess> =
        processes::all()?.into_iter().filter(|process| is_leftover(process, foreign)).collect();
    for process in &leftover {
        let words = format!("process {} ({})", process.pid, process.name);
        step(failures, "ended", &words, || command("kill", &["-KILL", &process.pid.to_string()]));
    }
    let deadline = Instant::now() + Duration::from_millis(KILL_TIMEOUT_MS);
    while Instant::now() < deadline && processes::all()?.iter().any(|process| lives(process, &leftover)) {
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// By its number and start: the rest changes while it ends.
fn lives(process: &HostProcess, leftover: &[HostProcess]) -> bool {
    leftover.iter().any(|other| (other.pid, other.started) == (process.pid, process.started))
}

fn is_leftover(process: &HostProcess, foreign: &Foreign) -> bool {
    let own = process.pid == std::process::id();
    !own && !foreign.has_process(process) && (process.contained || process.program == "sandbox-agent")
}

/// A killed process is in its cgroup until it has ended, which takes longer the more memory it has.
fn remove_cgroup(folder: &Path, deadline: Instant) -> Result<()> {
    loop {
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(error) => match processes_in(folder) {
                none if none.is_empty() => return Err(error.into()),
                processes => bail!("{error}; in it are the processes {processes}"),
            },
            Ok(()) => return Ok(()),
        }
    }
}

fn command(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program).args(args).output()?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    // Files below an existing mount may belong to others.
    if let Some(point) = kernel::mounts()?.iter().find(|m| Path::new(m).starts_with(path)) {
        bail!("{point} is still mounted");
    }
    let folder = path.is_dir() && !path.is_symlink();
    let removed = if folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    Ok(removed?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(program: &str, contained: bool) -> HostProcess {
        let (name, program) = (program.to_owned(), program.to_owned());
        HostProcess { pid: 1, started: 1, name, program, contained, sandbox: None }
    }

    #[test]
    fn only_processes_of_sandboxd_are_killed() {
        let is_leftover = |process: &HostProcess| is_leftover(process, &Foreign::default());
        assert!(is_leftover(&process("sandbox-agent", false)));
        assert!(is_leftover(&process("sleep", true)));
        assert!(!is_leftover(&process("runc", false)));
        assert!(!is_leftover(&process("sandbox-agents", false)));
        assert!(!is_leftover(&HostProcess { pid: std::process::id(), ..process("sandbox-agent", true) }));
    }

    #[test]
    fn a_process_that_ends_is_waited_for() {
        let agent = process("sandbox-agent", true);
        let ending = HostProcess { program: String::new(), contained: false, ..agent.clone() };
        assert!(lives(&ending, std::slice::from_ref(&agent)));
        assert!(!lives(&HostProcess { started: 2, ..agent.clone() }, &[agent]));
    }

    #[test]
    fn files_folders_and_links_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let kept = root.path().join("kept");
        fs::create_dir(&kept).unwrap();
        std::os::unix::fs::symlink(&kept, root.path().join("link")).unwrap();
        fs::create_dir_all(root.path().join("folder/deep")).unwrap();
        for name in ["link", "folder"] {
            remove(&root.path().join(name)).unwrap();
        }
        let left: Vec<_> = fs::read_dir(root.path()).unwrap().flatten().map(|e| e.path()).collect();
        assert_eq!(left, [kept]);
    }
}
