//! Sandboxes under gVisor's kernel, built by its runtime `runsc`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use api::SandboxId;
use driver::{AtStep, DriverError, DriverStep, NetworkHook};
use driver_host::{
    Assembled, Backend, Hibernation, Paths, ProcessCopy, Settings, Standstill, Start, Started, assemble,
    control_link, mount_place, prepare_token, runtime_root,
};
use rootfs::leave_host_namespace;
use rustix::mount::mount_bind;

use crate::attribute_filter::HostAttributes;
use crate::bundle::write_bundle;
use crate::checkpoint;
use crate::gvisor_filter::gvisor_filter;
use crate::netns::SandboxNetwork;
use crate::runtime::{self, AgentChannel, Invocation};

/// The first release that is accepted, by its date. Older ones lack the platform systrap and a complete restore.
pub const OLDEST_RELEASE: u32 = 20_240_101;

/// Why a program cannot be used as gVisor.
#[derive(Debug, thiserror::Error)]
pub enum GvisorError {
    #[error("cannot run {}: {source}", program.display())]
    CannotRun { program: PathBuf, source: io::Error },
    #[error("{} does not name its release: it is not runsc", program.display())]
    Unknown { program: PathBuf },
    #[error("{} is release {release}; 2024 or later is required", program.display())]
    TooOld { program: PathBuf, release: u32 },
}

/// gVisor, as installed.
#[derive(Debug, Clone)]
pub struct Gvisor {
    program: PathBuf,
    args: Vec<String>,
    release: u32,
}

impl Gvisor {
    /// `args` are additional arguments of `runsc` before its subcommand. Runs the program to check its release.
    pub fn new(program: PathBuf, args: Vec<String>) -> Result<Self, GvisorError> {
        // starts: runsc
        let output = Command::new(&program).arg("--version").env_clear().output();
        let output = output.map_err(|source| GvisorError::CannotRun { program: program.clone(), source })?;
        Self::of_version(program, args, &String::from_utf8_lossy(&output.stdout))
    }

    /// By the output of `runsc --version`.
    fn of_version(program: PathBuf, args: Vec<String>, version: &str) -> Result<Self, GvisorError> {
        match release_of(version) {
            None => Err(GvisorError::Unknown { program }),
            Some(release) if release < OLDEST_RELEASE => Err(GvisorError::TooOld { program, release }),
            Some(release) => Ok(Self { program, args, release }),
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The date of the release, as in 20240729.
    pub fn release(&self) -> u32 {
        self.release
    }

    fn invocation(&self) -> Invocation {
        let own = [
            "--network=sandbox",
            // The driver's cgroups hold the whole of gVisor.
            "--ignore-cgroups",
            // Connections to other hosts end when the sandbox is stored; otherwise it could not be.
            "--net-disconnect-ok",
            "--oci-seccomp",
            // Everything written goes to the sandbox's disk, not to memory.
            "--overlay2=none",
            "--platform=systrap",
            // Ping needs raw sockets. What they send leaves through the same link as everything else.
            "--net-raw",
        ];
        let args = own.into_iter().map(str::to_owned).chain(self.args.iter().cloned()).collect();
        let attributes = HostAttributes::under_gvisor(self.release);
        Invocation { program: self.program.clone(), args, attributes }
    }
}

/// The release in the first line of the output of `runsc --version`: `runsc version release-20240729.0`, or Debian's
/// `runsc version 0.0~20240729.0`.
fn release_of(text: &str) -> Option<u32> {
    let first = text.lines().next().filter(|line| line.starts_with("runsc version "))?;
    let numbers = first.split(|c: char| !c.is_ascii_digit());
    numbers.filter(|digits| digits.len() == 8).find_map(|digits| digits.parse().ok())
}

impl Backend for Gvisor {
    fn start(&self, start: &Start<'_>, network: Option<&NetworkHook>) -> Result<Started, DriverError> {
        let Start { settings, cgroups, spec, paths, .. } = *start;
        let name = spec.id.as_str();
        let agent_channel = match start.memory {
            Some(memory) => AgentChannel::Stored(memory.to_owned()),
            None => AgentChannel::Token(prepare_token(paths).at(DriverStep::OpenAgentLink)?),
        };
        // The limits apply to the processes of gVisor, which the daemon starts.
        cgroups
            .create(name, start.isolation, spec.limits, start.cpus, settings.pids_max)
            .at(DriverStep::MakeCgroups)?;

        leave_host_namespace().at(DriverStep::LeaveMountNamespace)?;
        let Assembled { mounts, device } =
            assemble(spec, paths, start.snapshots, &mount_place(settings), start.uid_base)?;
        start.limit_disk(device)?;
        let network = connect(network)?;
        write_bundle(start, gvisor_filter()?, Some(&network.path()))?;
        show_limits(start).at(DriverStep::ShowLimits)?;
        runtime::run(
            &self.invocation(),
            settings,
            &spec.id,
            paths,
            agent_channel,
            &cgroups.entry_files(name),
        )?;
        control_link::open().at(DriverStep::OpenAgentLink)?;
        Ok(Started { mounts, helper: None })
    }

    fn release(&self) -> Option<String> {
        Some(format!("gVisor release {}", self.release))
    }

    fn hibernate(
        &self,
        settings: &Settings,
        id: &SandboxId,
        paths: &Paths,
        hibernation: Hibernation<'_>,
    ) -> Result<(), DriverError> {
        checkpoint::checkpoint(&self.invocation(), settings, id, paths, hibernation)
    }

    fn copy_processes(
        &self,
        settings: &Settings,
        id: &SandboxId,
        paths: &Paths,
        copy: ProcessCopy<'_>,
    ) -> Result<Box<dyn Standstill>, DriverError> {
        checkpoint::copy(&self.invocation(), settings, id, paths, copy)
    }

    fn release_standstill(&self, settings: &Settings, id: &SandboxId, paths: &Paths) {
        if let Err(error) = checkpoint::resume(&self.invocation(), settings, id, paths) {
            tracing::warn!(%id, %error, "cannot let the processes of a sandbox go on");
        }
    }

    fn clear(&self, settings: &Settings, id: &SandboxId) -> Result<(), DriverError> {
        remove_state(settings, id).at(DriverStep::RemoveRuntimeState)
    }
}

/// gVisor moves the addresses and routes of a namespace into its own network stack when it starts, so the namespace is connected
/// before. The calling thread is in it afterwards.
fn connect(hook: Option<&NetworkHook>) -> Result<SandboxNetwork, DriverError> {
    let network = SandboxNetwork::new().at(DriverStep::ConnectNetwork)?;
    if let Some(hook) = hook {
        hook(network.namespace()).at(DriverStep::ConnectNetwork)?;
    }
    network.enter().at(DriverStep::ConnectNetwork)?;
    control_link::add().at(DriverStep::ConnectNetwork)?;
    Ok(network)
}

/// gVisor takes the machine's memory as that of the sandbox. In this thread's mount namespace `/proc/meminfo` shows the sandbox's
/// limit.
fn show_limits(start: &Start<'_>) -> io::Result<()> {
    const MEMINFO: &str = "/proc/meminfo";
    let own = start.paths.run.join("meminfo");
    fs::write(&own, with_total(&fs::read_to_string(MEMINFO)?, start.spec.limits.memory_mb))?;
    Ok(mount_bind(&own, MEMINFO)?)
}

fn with_total(meminfo: &str, megabytes: u32) -> String {
    let total = format!("MemTotal: {} kB", u64::from(megabytes) << 10);
    let lines = meminfo.lines().map(|line| if line.starts_with("MemTotal:") { total.as_str() } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Removes the files of a sandbox that has no processes: their names contain the sandbox's.
fn remove_state(settings: &Settings, id: &SandboxId) -> io::Result<()> {
    for entry in fs::read_dir(runtime_root(settings))? {
        let path = entry?.path();
        let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
        if name.contains(id.as_str()) {
            ignore_not_found(if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) })?;
        }
    }
    Ok(())
}

/// A missing file counts as removed.
fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_from_both_forms_of_the_version() {
        assert_eq!(release_of("runsc version release-20240729.0\nspec: 1.1.0\n"), Some(20_240_729));
        assert_eq!(release_of("runsc version 0.0~20221219.0\nspec: 1.0.2-dev\n"), Some(20_221_219));
        for other in ["runc version 1.1.5\ncommit: 20240101", "", "runsc version VERSION_MISSING\n20240101"] {
            assert_eq!(release_of(other), None, "{other}");
        }
    }

    #[test]
    fn releases_before_2024_are_refused() {
        let accepted = |version: &str| Gvisor::of_version("/usr/bin/runsc".into(), Vec::new(), version);
        assert_eq!(accepted("runsc version 0.0~20240729.0").unwrap().release(), 20_240_729);
        let error = accepted("runsc version 0.0~20221219.0").unwrap_err().to_string();
        assert_eq!(error, "/usr/bin/runsc is release 20221219; 2024 or later is required");
        assert!(accepted("runc version 1.1.5").is_err());
    }

    #[test]
    fn only_the_total_of_the_memory_changes() {
        let shown = with_total("MemTotal:       24684000 kB\nMemFree:        1 kB\n", 512);
        assert_eq!(shown, "MemTotal: 524288 kB\nMemFree:        1 kB\n");
    }
}
