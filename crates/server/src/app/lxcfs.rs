//! The lxcfs that shows programs the memory, CPUs and uptime of their sandbox. `serve` starts one if the host runs none, and
//! restarts it when it ends; `app` and `doctor` use its directory.
//!
//! ```text
//! /var/lib/lxcfs responds ──> it is used; the host's service manager supervises it
//! otherwise               ──> the daemon's own, mounted in its run directory:
//!                             keeps running when the daemon ends, is adopted by the next daemon,
//!                             and is ended by a daemon that stops without sandboxes, or whose start fails
//! ```
//!
//! Without an lxcfs, sandboxes work and show the host's values, so a failure here is logged and never fails the start. If the lxcfs
//! of a running sandbox ends, reads of these values in the sandbox return an error; they do not block.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base::chain_text;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::{find_program, meminfo_kilobytes, oom_score, total_memory_mb};
use crate::config::Config;

/// The mount point of the distributions' packages.
const SYSTEM: &str = "/var/lib/lxcfs";
const PROGRAM: &str = "lxcfs";
const DIR: &str = "lxcfs";
const PID_FILE: &str = "lxcfs.pid";
const LOG: &str = "lxcfs.log";
/// A start takes about 20 ms until the mount.
const START_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_EVERY: Duration = Duration::from_millis(10);
/// How often the supervisor checks for its stop.
const WATCH_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// An lxcfs that ends earlier counts as another failed start.
const LIVED: Duration = Duration::from_secs(60);
/// An lxcfs with more memory than this is started again. Sandboxes with too many open files end long before (see the driver's
/// `hoarders`); this is the last resort, because those that run lose their own values.
const MEMORY_MAX_MB: u64 = 512;
/// And with more than this part of the host's memory.
const MEMORY_PART: u64 = 16;
/// The most stacked mounts that are removed.
const STALE_MOUNTS: usize = 16;

/// Where sandboxes get these values from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LxcfsSource {
    /// None: sandboxes show the host's values.
    None { reason: String },
    /// The host's.
    Host(PathBuf),
    /// The daemon's.
    Own(Own),
}

/// The daemon's lxcfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    program: PathBuf,
    run_dir: PathBuf,
}

impl LxcfsSource {
    /// By `runtime.lxcfs` and the host.
    pub fn of(config: &Config, run_dir: &Path) -> Result<Self> {
        match config.runtime.lxcfs.as_str() {
            "off" => Ok(Self::None { reason: "runtime.lxcfs is \"off\"".to_owned() }),
            "auto" => Ok(Self::detect(run_dir)),
            dir => {
                ensure!(answers(Path::new(dir)), "runtime.lxcfs is '{dir}', but no lxcfs responds there");
                Ok(Self::Host(PathBuf::from(dir)))
            }
        }
    }

    fn detect(run_dir: &Path) -> Self {
        if answers(Path::new(SYSTEM)) {
            return Self::Host(PathBuf::from(SYSTEM));
        }
        let none = |reason: &str| Self::None { reason: reason.to_owned() };
        match find_program(PROGRAM) {
            None => none("lxcfs is not installed"),
            Some(_) if !Path::new("/dev/fuse").exists() => none("there is no /dev/fuse"),
            Some(program) => Self::Own(Own { program, run_dir: run_dir.to_owned() }),
        }
    }

    /// The directory for the driver, which checks at each start of a sandbox whether lxcfs responds.
    pub fn dir(&self) -> Option<PathBuf> {
        match self {
            Self::None { .. } => None,
            Self::Host(dir) => Some(dir.clone()),
            Self::Own(own) => Some(own.dir()),
        }
    }
}

fn answers(dir: &Path) -> bool {
    fs::read(dir.join("proc/meminfo")).is_ok_and(|text| !text.is_empty())
}

/// Keeps the daemon's lxcfs running, in its own thread.
#[derive(Debug)]
pub struct Supervisor {
    own: Own,
    stop: Sender<()>,
    /// Returns what runs at the stop.
    thread: JoinHandle<Option<Running>>,
}

impl Supervisor {
    /// Adopts or starts the daemon's lxcfs, if that is the source.
    pub fn start(source: &LxcfsSource) -> Option<Self> {
        let own = match source {
            LxcfsSource::Own(own) => own.clone(),
            LxcfsSource::Host(_) => return None,
            LxcfsSource::None { reason } => {
                tracing::warn!(reason, "sandboxes show the host's memory and CPUs");
                return None;
            }
        };
        let (stop, stopped) = mpsc::channel();
        let first = own.take_over().or_else(|| own.start_logged());
        let watched = own.clone();
        let spawned = std::thread::Builder::new()
            .name("lxcfs".to_owned())
            .spawn(move || watch(&watched, first, &stopped));
        match spawned {
            Ok(thread) => Some(Self { own, stop, thread }),
            Err(error) => {
                tracing::warn!(%error, "cannot start the thread that watches lxcfs; lxcfs is not started again if it ends");
                None
            }
        }
    }

    /// Ends the supervision. The lxcfs keeps running unless there are no sandboxes.
    pub fn stop(self, living_sandboxes: usize) {
        let (own, _) = self.stop_watching();
        if living_sandboxes == 0 {
            own.end_logged();
        }
    }

    /// Ends the supervision after a failed start. The lxcfs of an earlier daemon keeps running: sandboxes use it.
    pub fn abandon(self) {
        let (own, running) = self.stop_watching();
        if running.is_some_and(|running| running.child.is_some()) {
            own.end_logged();
        }
    }

    fn stop_watching(self) -> (Own, Option<Running>) {
        // The thread may have ended already.
        let _ = self.stop.send(());
        let running = self.thread.join().unwrap_or_else(|_| {
            tracing::warn!("the thread that watches lxcfs panicked");
            None
        });
        (self.own, running)
    }
}

/// A running lxcfs.
#[derive(Debug)]
struct Running {
    pid: i32,
    /// Readable when the process has ended.
    pidfd: OwnedFd,
    /// `None` if an earlier daemon started it.
    child: Option<Child>,
    since: Instant,
}

impl Running {
    /// Waits a short time; `true` if the process has ended.
    fn has_ended(&mut self) -> bool {
        let mut wait = [PollFd::new(&self.pidfd, PollFlags::IN)];
        if !matches!(poll(&mut wait, Some(&WATCH_EVERY)), Ok(1..)) {
            return false;
        }
        if let Some(child) = &mut self.child {
            // Reaps the process; its log has the reason.
            let _ = child.wait();
        }
        true
    }

    /// Kills the process if it takes too much memory.
    fn bound_memory(&self, max_mb: u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let memory_mb = meminfo_kilobytes(&status, "VmRSS:").unwrap_or(0) / 1024;
        if memory_mb > max_mb {
            tracing::warn!(memory_mb, "lxcfs takes too much memory; it is ended");
            // Fails if it has ended.
            let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        }
    }
}

/// Returns what runs when the supervision ends.
fn watch(own: &Own, mut running: Option<Running>, stopped: &Receiver<()>) -> Option<Running> {
    let memory_max_mb = total_memory_mb().map_or(MEMORY_MAX_MB, |all| (all / MEMORY_PART).min(MEMORY_MAX_MB));
    let mut pause = RETRY_MIN;
    loop {
        if let Some(process) = &mut running {
            if process.has_ended() {
                tracing::warn!(log = %own.path(LOG).display(), "lxcfs has ended; it is started again");
                pause = if process.since.elapsed() > LIVED { RETRY_MIN } else { pause };
                running = None;
            } else if !matches!(stopped.try_recv(), Err(mpsc::TryRecvError::Empty)) {
                return running;
            } else {
                process.bound_memory(memory_max_mb);
            }
            continue;
        }
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => running = own.start_logged(),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return None,
        }
        pause = (pause * 2).min(RETRY_MAX);
    }
}

impl Own {
    fn dir(&self) -> PathBuf {
        self.run_dir.join(DIR)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.run_dir.join(name)
    }

    /// The lxcfs of an earlier daemon, if it still runs and is mounted.
    fn take_over(&self) -> Option<Running> {
        let pid: i32 = fs::read_to_string(self.path(PID_FILE)).ok()?.trim().parse().ok()?;
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // Checked after the descriptor is open: from then on the pid cannot be reused.
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let dir = self.dir();
        let is_ours =
            arguments.split(|byte| *byte == 0).any(|argument| argument == dir.as_os_str().as_encoded_bytes());
        (is_ours && mounts_at(&dir) > 0).then(|| {
            tracing::info!(pid, "lxcfs still runs");
            // An earlier version may have started it.
            oom_score::protect(&pid.to_string());
            Running { pid, pidfd, child: None, since: Instant::now() }
        })
    }

    fn start_logged(&self) -> Option<Running> {
        match self.start() {
            Ok(running) => Some(running),
            Err(error) => {
                let error = chain_text(&*error);
                tracing::warn!(error, "lxcfs does not run: new sandboxes show the host's memory and CPUs");
                None
            }
        }
    }

    fn start(&self) -> Result<Running> {
        self.unmount()?;
        let dir = self.dir();
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let log = File::create(self.path(LOG)).context("cannot create the log of lxcfs")?;
        // starts: lxcfs
        let mut child = Command::new(&self.program)
            .arg("-f")
            .arg("-p")
            .arg(self.path("lxcfs.lock"))
            .arg(&dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in a terminal must end the daemon only: sandboxes use lxcfs.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let mounted = self.wait_until_mounted(&mut child);
        if mounted.is_err() {
            let _ = child.kill();
            let _ = child.wait();
            self.unmount()?;
        }
        mounted?;
        fs::write(self.path(PID_FILE), child.id().to_string()).context("cannot write the pid of lxcfs")?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("lxcfs has no pid")?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        tracing::info!(pid = child.id(), dir = %dir.display(), "lxcfs runs");
        Ok(Running { pid: pid.as_raw_nonzero().get(), pidfd, child: Some(child), since: Instant::now() })
    }

    fn wait_until_mounted(&self, child: &mut Child) -> Result<()> {
        let dir = self.dir();
        let begun = Instant::now();
        while mounts_at(&dir) == 0 {
            if let Some(status) = child.try_wait()? {
                let log = fs::read_to_string(self.path(LOG)).unwrap_or_default();
                bail!("lxcfs ended with {status}: {}", log.lines().last().unwrap_or("it logged nothing"));
            }
            ensure!(begun.elapsed() < START_TIMEOUT, "lxcfs did not mount {}", dir.display());
            std::thread::sleep(POLL_EVERY);
        }
        Ok(())
    }

    /// Removes every mount from the directory. An lxcfs ends with the last user of its mount.
    fn unmount(&self) -> Result<()> {
        let dir = self.dir();
        for _ in 0..STALE_MOUNTS {
            if mounts_at(&dir) == 0 {
                return Ok(());
            }
            unmount(&dir, UnmountFlags::DETACH)
                .with_context(|| format!("cannot unmount {}", dir.display()))?;
        }
        bail!("{} is still mounted", dir.display())
    }

    fn end_logged(&self) {
        if let Err(error) = self.end() {
            tracing::warn!(error = chain_text(&*error), "lxcfs stays mounted");
        }
    }

    fn end(&self) -> Result<()> {
        self.unmount()?;
        for name in [PID_FILE, LOG, "lxcfs.lock"] {
            ignore_not_found(fs::remove_file(self.path(name)))?;
        }
        Ok(ignore_not_found(fs::remove_dir(self.dir()))?)
    }
}

fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    base::allow_missing(removed)
}

/// The number of mounts at a directory, from the mount table: an access to the directory blocks if lxcfs hangs.
fn mounts_at(dir: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter(|line| line.split(' ').nth(4).is_some_and(|point| Path::new(point) == dir)).count()
}
