//! The service as its users meet it: `sandboxd serve` in a process of its own, on a place of its own, over TLS. Called by tests.
//!
//! Whatever becomes of a test, dropping the service kills its process and clears the place. The log goes with it, after a
//! test that fails has shown its end.

mod answer;
mod client;
mod disk;
mod events;
mod keys;
mod network;
mod options;
mod raw;
mod sender;
mod tls;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::options::{RigOptions, agent, workspace};
use crate::place::{Place, Sweeper};
use crate::rig::IMAGE;

pub use answer::Answer;
pub use client::{Call, Client, Protocol};
pub use events::{Event, Events};
pub use options::ServiceOptions;
pub use raw::{Raw, read_answer};

/// A start may follow a crash, whose sandboxes are looked at first.
const START_PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How much of the log a failed test shows.
const SHOWN_LINES: usize = 40;

/// One installation of the service; its process may be stopped, killed and started again.
pub struct Service {
    pub place: Place,
    /// Where HTTPS is.
    pub address: SocketAddr,
    /// Where plain HTTP is redirected.
    pub plain: SocketAddr,
    pub metrics: SocketAddr,
    programs: PathBuf,
    process: Mutex<Option<Child>>,
    keys: keys::Keys,
    _sweeper: Sweeper,
    /// Unmounted after the sweeper has removed what is on it.
    small_disk: Option<disk::SmallDisk>,
}

impl Service {
    /// An installation whose process does not run yet.
    pub fn new(options: &ServiceOptions) -> Result<Self> {
        let mut place = Place::fresh();
        let small_disk = match options.disk_mb {
            Some(megabytes) => {
                std::fs::create_dir_all(place.data.parent().context("a place without a parent")?)?;
                let disk = disk::SmallDisk::new(&place.data, megabytes)?;
                // Below the mount, so that the sweeper can remove it.
                place.data = disk.mount.join("data");
                Some(disk)
            }
            None => None,
        };
        let sweeper = Sweeper::new(&place, &RigOptions::default());
        std::fs::create_dir_all(&place.data)?;
        let [address, plain, metrics] = free_addresses()?;
        let service = Self {
            place,
            address,
            plain,
            metrics,
            programs: options.programs.clone().unwrap_or_else(|| workspace().join("target/bin")),
            process: Mutex::default(),
            keys: keys::Keys::default(),
            _sweeper: sweeper,
            small_disk,
        };
        service.lay_out_images(options)?;
        let text = options.toml(&service.place, &agent()?, [address, plain, metrics]);
        std::fs::write(service.config_file(), text)?;
        Ok(service)
    }

    /// One that serves.
    pub async fn start(options: &ServiceOptions) -> Result<Self> {
        let service = Self::new(options)?;
        service.boot().await?;
        Ok(service)
    }

    /// All services and rigs share one Debian root, unless a test is about images.
    fn lay_out_images(&self, options: &ServiceOptions) -> Result<()> {
        if options.own_images {
            return Ok(());
        }
        let layer = crate::rootfs()?;
        let images = layer.ancestors().nth(2).context("the root file system is in no image directory")?;
        Ok(std::os::unix::fs::symlink(images.canonicalize()?, self.place.data.join("images"))?)
    }

    pub fn config_file(&self) -> PathBuf {
        self.place.data.join("service.toml")
    }

    pub fn log_file(&self) -> PathBuf {
        self.place.data.join("service.log")
    }

    /// All that the daemon has said so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The program with this installation's configuration and no other.
    pub fn program(&self) -> Result<Command> {
        let program = self.programs.join("sandboxd");
        ensure!(program.exists(), "no {}: run './dev build' first", program.display());
        // starts: sandboxd
        let mut command = Command::new(program);
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SANDBOXD_"))
        {
            command.env_remove(name);
        }
        command.arg("--config").arg(self.config_file()).stdin(Stdio::null());
        Ok(command)
    }

    /// Starts the process and waits until it answers.
    pub async fn boot(&self) -> Result<()> {
        ensure!(self.pid().is_none(), "the service runs already");
        let log = std::fs::File::options().create(true).append(true).open(self.log_file())?;
        let child = self.program()?.arg("serve").stdout(log.try_clone()?).stderr(log).spawn()?;
        *self.process() = Some(child);
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                bail!("the service ended with {status} instead of serving:\n{}", self.end_of_log());
            }
            if self.healthy().await {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < START_PATIENCE,
                "the service does not get ready:\n{}",
                self.end_of_log()
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn healthy(&self) -> bool {
        let Ok(client) = self.anonymous() else { return false };
        client.get("/v1/health").await.is_ok_and(|answer| answer.status == 200)
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.process().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().context("the service does not run")?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no number of a process")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the end of a process that was told to stop.
    pub async fn gone(&self, patience: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(begin.elapsed() < patience, "the service does not stop:\n{}", self.end_of_log());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// SIGTERM, and a new process when the old one has ended in good order.
    pub async fn restart(&self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.gone(START_PATIENCE).await?;
        ensure!(status.success(), "the service ended with {status}:\n{}", self.end_of_log());
        self.boot().await
    }

    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    /// How the process ended, if it has; then there is none any more.
    fn ended(&self) -> Result<Option<ExitStatus>> {
        let mut process = self.process();
        let status = process.as_mut().context("the service does not run")?.try_wait()?;
        if status.is_some() {
            *process = None;
        }
        Ok(status)
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn end_of_log(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    /// Bytes that are free on the small disk of a service that has one.
    pub fn free_bytes(&self) -> Result<u64> {
        let disk = self.small_disk.as_ref().context("the service has no disk of its own")?;
        let statvfs = rustix::fs::statvfs(&disk.mount)?;
        Ok(statvfs.f_bavail * statvfs.f_frsize)
    }

    /// Allocates space on the small disk until only so much is free. The returned file gives it back when it is deleted.
    pub fn leave_free(&self, bytes: u64) -> Result<PathBuf> {
        // Dirty pages of the sandboxes need their space.
        rustix::fs::sync();
        let disk = self.small_disk.as_ref().context("the service has no disk of its own")?;
        let path = disk.mount.join("ballast");
        let file = std::fs::File::create(&path)?;
        let more = self.free_bytes()?.saturating_sub(bytes);
        if more > 0 {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, more)?;
        }
        Ok(path)
    }

    /// The name of the image that every service has.
    pub fn image() -> &'static str {
        IMAGE
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the service of the failed test said last:\n{}", self.end_of_log());
        }
        if let Err(error) = self.kill() {
            eprintln!("the service could not be killed: {error:#}");
        }
        network::remove(&self.place.data);
        unmount_lxcfs(&self.place.run);
    }
}

/// A daemon that was killed leaves its lxcfs, which ends with its mount.
fn unmount_lxcfs(run: &Path) {
    let dir = run.join("lxcfs");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if mounts.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(&dir)) {
        let unmounted = rustix::mount::unmount(&dir, rustix::mount::UnmountFlags::DETACH);
        if let Err(error) = unmounted {
            eprintln!("{} stays mounted: {error}", dir.display());
        }
    }
}

/// Addresses that nobody listened on a moment ago.
fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let held: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    addresses.try_into().map_err(|_| anyhow::anyhow!("not {N} addresses"))
}
