//! Removes resources that runs and tests left on this machine: `./dev clean`. It refuses to run beside a running daemon. Each step
//! runs even if an earlier one failed; the command can be repeated.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::processes::Process;
use super::{disk, kernel, processes};

const KILL_TIMEOUT_MS: u64 = 5_000;

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
    let mut failures = Vec::new();
    end_processes(&mut failures)?;
    // In reverse order, because later mounts are on top.
    for point in kernel::mounts()?.iter().rev().filter(|p| p.contains("sandboxd")) {
        step(&mut failures, "unmounted", point, || command("umount", &["--lazy", point]));
    }
    for (device, _) in kernel::loop_devices()?.iter().filter(|(name, _)| name.contains("sandboxd")) {
        let device = device.split(' ').next().unwrap_or_default();
        step(&mut failures, "detached", device, || command("losetup", &["--detach", device]));
    }
    for folder in kernel::cgroups()?.iter().rev() {
        step(&mut failures, "removed", folder, || Ok(fs::remove_dir(folder)?));
    }
    for path in disk::roots().iter().filter(|p| data == Data::Remove || !p.starts_with("/var/lib")) {
        step(&mut failures, "removed", &path.display().to_string(), || remove(path));
    }
    for failure in &failures {
        println!("clean: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn step(failures: &mut Vec<String>, done: &str, what: &str, act: impl FnOnce() -> Result<()>) {
    match act() {
        Ok(()) => println!("clean: {done} {what}"),
        Err(error) => failures.push(format!("{what}: {error:#}")),
    }
}

/// Kills all processes in sandboxd's cgroups, frozen or not, and all agents, but no other processes of runc.
fn end_processes(failures: &mut Vec<String>) -> Result<()> {
    for folder in kernel::cgroups()? {
        let state = Path::new(&folder).join("freezer.state");
        if state.exists() {
            step(failures, "thawed", &folder, || Ok(fs::write(&state, "THAWED")?));
        }
    }
    let leftover: Vec<Process> = processes::all()?.into_iter().filter(is_leftover).collect();
    for process in &leftover {
        let words = format!("process {} ({})", process.pid, process.name);
        step(failures, "ended", &words, || command("kill", &["-KILL", &process.pid.to_string()]));
    }
    let deadline = Instant::now() + Duration::from_millis(KILL_TIMEOUT_MS);
    while Instant::now() < deadline && processes::all()?.iter().any(|p| leftover.contains(p)) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_leftover(process: &Process) -> bool {
    let own = process.pid == std::process::id();
    !own && (process.contained || process.program == "sandbox-agent")
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

    fn process(program: &str, contained: bool) -> Process {
        Process { pid: 1, started: 1, name: program.into(), program: program.into(), contained }
    }

    #[test]
    fn only_processes_of_sandboxd_are_killed() {
        assert!(is_leftover(&process("sandbox-agent", false)));
        assert!(is_leftover(&process("sleep", true)));
        assert!(!is_leftover(&process("runc", false)));
        assert!(!is_leftover(&process("sandbox-agents", false)));
        assert!(!is_leftover(&Process { pid: std::process::id(), ..process("sandbox-agent", true) }));
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
