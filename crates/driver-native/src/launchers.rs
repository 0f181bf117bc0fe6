//! Launcher processes, and what is left of those that fail.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use base::IgnorePoison;
use driver::{AtStep, DriverError, DriverStep};
use driver_host::{Start, collect};
use launcher::{Report, receive};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// A start takes a few milliseconds, and some hundreds on a host that is busy or short of memory.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long the first process may take to end after its launcher.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(2);
/// The name of the launcher's processes, cut off by the kernel.
const NAME: &str = "sandbox-launche";

/// The pids of the launchers of this process.
#[derive(Debug, Clone, Default)]
pub struct Launchers(Arc<Mutex<BTreeSet<i32>>>);

impl Launchers {
    fn pids(&self) -> MutexGuard<'_, BTreeSet<i32>> {
        self.0.lock().ignore_poison()
    }

    /// Collects the first processes of launchers that have died. The daemon has inherited them; their parent-death signal or
    /// the closed socket ends them.
    fn reap_orphans(&self) {
        let begin = Instant::now();
        loop {
            // Locked meanwhile, so that no new launcher is taken for an orphan.
            let launchers = self.pids();
            let orphans = children().into_iter().filter(|pid| !launchers.contains(pid) && is_launcher(*pid));
            let alive = orphans.filter(|pid| !collect(*pid)).count();
            drop(launchers);
            if alive == 0 || begin.elapsed() > ORPHAN_TIMEOUT {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The children of all threads of this process.
fn children() -> Vec<i32> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

fn is_launcher(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == NAME)
}

/// A launcher. Unless the agent runs, it is killed on drop, and with it the process that it forked.
pub struct Launcher {
    child: Child,
    all: Launchers,
    pub socket: OwnedFd,
    is_done: bool,
}

impl Launcher {
    pub fn spawn(all: &Launchers, program: &Path, start: &Start<'_>) -> Result<Self, DriverError> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .at(DriverStep::StartLauncher)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(TIMEOUT)).at(DriverStep::StartLauncher)?;
        let log = File::create(start.paths.agent_log()).at(DriverStep::StartLauncher)?;
        // The agent inherits the outputs; it gets neither the socket nor the daemon's environment.
        // starts: sandbox-launcher
        let mut command = Command::new(program);
        command.env_clear().stdin(Stdio::from(theirs));
        command.stdout(Stdio::from(log.try_clone().at(DriverStep::StartLauncher)?)).stderr(Stdio::from(log));
        let mut pids = all.pids();
        let child = command.spawn().at(DriverStep::StartLauncher)?;
        pids.extend(i32::try_from(child.id()));
        drop(pids);
        Ok(Self { child, all: all.clone(), socket: ours, is_done: false })
    }

    fn report(&self) -> Result<(Report, Vec<OwnedFd>), DriverError> {
        match receive::<Report>(&self.socket) {
            Ok(Some((Report::Failed { step, error }, _))) => Err(failure(step, error)),
            Ok(Some(report)) => Ok(report),
            Ok(None) => {
                Err(DriverError::failed(DriverStep::StartSandbox, "the launcher ended without a report"))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(DriverError::failed(
                DriverStep::StartSandbox,
                format!("the launcher did not answer within {} s", TIMEOUT.as_secs()),
            )),
            Err(error) => Err(DriverError::failed(DriverStep::ReachLauncher, error)),
        }
    }

    /// The host's pid and the network namespace of the sandbox's first process.
    pub fn forked(&self) -> Result<(i32, OwnedFd), DriverError> {
        match self.report()? {
            (Report::Forked { pid }, files) => match files.into_iter().next() {
                Some(namespace) => Ok((pid, namespace)),
                None => Err(DriverError::failed(DriverStep::StartSandbox, "the launcher sent no namespace")),
            },
            (report, _) => Err(unexpected(&report)),
        }
    }

    /// Waits until the agent runs; returns the sandbox's root. The launcher then ends.
    pub fn done(&mut self) -> Result<OwnedFd, DriverError> {
        match self.report()? {
            (Report::Done, files) => {
                self.is_done = true;
                let root = files.into_iter().next();
                root.ok_or_else(|| DriverError::failed(DriverStep::StartSandbox, "the launcher sent no root"))
            }
            (report, _) => Err(unexpected(&report)),
        }
    }
}

/// The kernel refuses a filter of system calls with this number, which has no name outside of it, when all compiled programs
/// together have reached `net.core.bpf_jit_limit`.
const PROGRAMS_FULL: i32 = 524;

/// A failed step, or the resource of the host that the kernel has no more of.
fn failure(step: String, error: i32) -> DriverError {
    let source = io::Error::from_raw_os_error(error);
    let what = match error {
        PROGRAMS_FULL => {
            let source = io::Error::other("all compiled filters reach the limit net.core.bpf_jit_limit");
            return DriverError::Exhausted { what: "memory for filters of system calls", source };
        }
        libc::ENOMEM => "memory",
        libc::EMFILE | libc::ENFILE => "open files",
        libc::EAGAIN => "processes",
        _ => return DriverError::failed(DriverStep::Named(step), source),
    };
    DriverError::Exhausted { what, source: io::Error::new(source.kind(), format!("cannot {step}: {source}")) }
}

fn unexpected(report: &Report) -> DriverError {
    DriverError::failed(DriverStep::StartSandbox, format!("the launcher reported {report:?}"))
}

impl Drop for Launcher {
    fn drop(&mut self) {
        if !self.is_done {
            // Fails if it has ended.
            let _ = self.child.kill();
        }
        let waited = self.child.wait();
        if let Ok(pid) = i32::try_from(self.child.id()) {
            self.all.pids().remove(&pid);
        }
        match waited {
            Ok(_) if self.is_done => {}
            Ok(_) => self.all.reap_orphans(),
            Err(error) => tracing::warn!(%error, "cannot wait for a launcher"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_has_no_more_of_something_is_an_exhausted_host() {
        let what = |error| match failure("filter system calls".to_owned(), error) {
            DriverError::Exhausted { what, source } => Some((what, source.to_string())),
            _ => None,
        };
        let (filters, reason) = what(PROGRAMS_FULL).unwrap();
        assert!(filters.contains("filters") && reason.contains("net.core.bpf_jit_limit"), "{reason}");
        let (memory, reason) = what(libc::ENOMEM).unwrap();
        assert!(memory == "memory" && reason.starts_with("cannot filter system calls: "), "{reason}");
        assert_eq!(what(libc::EPERM), None);
    }
}
