//! The service as users see it: `sandboxd serve` in a separate process with its own directories, over TLS. Used by tests.
//!
//! Dropping the service kills its process and removes its resources, also after a failed test. A failed test prints the end of
//! the log before it is removed.

mod answer;
mod bodies;
mod client;
mod disk;
mod events;
mod keys;
mod metrics;
mod network;
mod options;
mod raw;
mod sandboxes;
mod sender;
mod tls;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base::IgnorePoison;
use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process};

use crate::layout::{CleanupGuard, RigLayout};
use crate::options::{RigOptions, agent, workspace};
use crate::rig::IMAGE;

pub use answer::HttpResponse;
pub use bodies::{small, with};
pub use client::{Call, Client, Protocol};
pub use events::{Event, Events};
pub use metrics::sample;
pub use options::ServiceOptions;
pub use raw::{Raw, read_answer, read_head};
pub use sandboxes::{SANDBOXES, action_path, number, output, run_command, sandbox_path, state, text};

/// Includes the time for recovery after a crash.
const START_TIMEOUT: Duration = Duration::from_secs(150);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How many lines of the log a failed test prints.
const SHOWN_LINES: usize = 40;

/// An installation of the service. Its process can be stopped, killed and started again.
pub struct Service {
    pub layout: RigLayout,
    /// The address of HTTPS.
    pub address: SocketAddr,
    /// The address of plain HTTP, which redirects to HTTPS.
    pub plain: SocketAddr,
    pub metrics: SocketAddr,
    programs: PathBuf,
    process: Mutex<Option<Child>>,
    keys: keys::Keys,
    _cleanup: CleanupGuard,
    /// Dropped, and so unmounted, after the cleanup guard has removed the data on it.
    small_disk: Option<disk::SmallDisk>,
}

impl Service {
    /// An installation without a running process.
    pub fn new(options: &ServiceOptions) -> Result<Self> {
        let mut layout = RigLayout::unused();
        let small_disk = match options.disk_mb {
            Some(megabytes) => {
                std::fs::create_dir_all(layout.data.parent().context("the data directory has no parent")?)?;
                let disk = disk::SmallDisk::new(&layout.data, megabytes)?;
                // Below the mount point, so that the cleanup guard can remove it.
                layout.data = disk.mount.join("data");
                Some(disk)
            }
            None => None,
        };
        let cleanup = CleanupGuard::new(&layout, &RigOptions::default());
        std::fs::create_dir_all(&layout.data)?;
        let [address, plain, metrics] = free_addresses()?;
        let service = Self {
            layout,
            address,
            plain,
            metrics,
            programs: options.programs.clone().unwrap_or_else(|| workspace().join("target/bin")),
            process: Mutex::default(),
            keys: keys::Keys::default(),
            _cleanup: cleanup,
            small_disk,
        };
        service.link_images(options)?;
        let text = options.toml(&service.layout, &agent()?, [address, plain, metrics]);
        std::fs::write(service.config_file(), text)?;
        Ok(service)
    }

    /// An installation with a running process that answers requests.
    pub async fn start(options: &ServiceOptions) -> Result<Self> {
        let service = Self::new(options)?;
        service.start_process().await?;
        Ok(service)
    }

    /// Links the images that all services and rigs share, unless the test needs its own.
    fn link_images(&self, options: &ServiceOptions) -> Result<()> {
        if options.own_images {
            return Ok(());
        }
        let layer = crate::rootfs()?;
        let images = layer.ancestors().nth(2).context("the root file system is in no image directory")?;
        Ok(std::os::unix::fs::symlink(images.canonicalize()?, self.layout.data.join("images"))?)
    }

    pub fn config_file(&self) -> PathBuf {
        self.layout.data.join("service.toml")
    }

    pub fn log_file(&self) -> PathBuf {
        self.layout.data.join("service.log")
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The rows that a query finds in the store of the daemon.
    pub fn stored(&self, query: &str) -> Result<Vec<String>> {
        let file = self.layout.data.join("store.db");
        let output = Command::new("sqlite3").arg("-readonly").arg(file).arg(query).output()?;
        ensure!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
    }

    /// `sandboxd` with this installation's configuration only.
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
    pub async fn start_process(&self) -> Result<()> {
        ensure!(self.pid().is_none(), "the service is already running");
        let log = std::fs::File::options().create(true).append(true).open(self.log_file())?;
        let child = self.program()?.arg("serve").stdout(log.try_clone()?).stderr(log).spawn()?;
        *self.process() = Some(child);
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                bail!("the service ended with {status} instead of serving:\n{}", self.log_tail());
            }
            if self.healthy().await {
                return Ok(());
            }
            ensure!(
                begin.elapsed() < START_TIMEOUT,
                "the service is not ready in time:\n{}",
                self.log_tail()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn healthy(&self) -> bool {
        let Ok(client) = self.anonymous() else { return false };
        client.get("/v1/health").await.is_ok_and(|answer| answer.status == 200)
    }

    /// Sends SIGKILL; returns when the process has ended.
    pub fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.process().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.pid().context("the service is not running")?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Waits for the end of a process that was told to stop.
    pub async fn wait_for_exit(&self, timeout: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            ensure!(begin.elapsed() < timeout, "the service did not stop in time:\n{}", self.log_tail());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Stops the process with SIGTERM, expects success, and starts another.
    pub async fn restart(&self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.wait_for_exit(START_TIMEOUT).await?;
        ensure!(status.success(), "the service ended with {status}:\n{}", self.log_tail());
        self.start_process().await
    }

    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Child::id)
    }

    /// The exit status of the process if it has ended; it is then forgotten.
    fn ended(&self) -> Result<Option<ExitStatus>> {
        let mut process = self.process();
        let status = process.as_mut().context("the service is not running")?.try_wait()?;
        if status.is_some() {
            *process = None;
        }
        Ok(status)
    }

    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().ignore_poison()
    }

    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    /// Free bytes on the file system of the data directory.
    pub fn free_bytes(&self) -> Result<u64> {
        let statvfs = rustix::fs::statvfs(&self.layout.data)?;
        Ok(statvfs.f_bavail * statvfs.f_frsize)
    }

    /// Fills the small disk until at most `bytes` are free. Deleting the returned file frees the space again.
    pub fn leave_free(&self, bytes: u64) -> Result<PathBuf> {
        // Dirty pages of the sandboxes need space too.
        rustix::fs::sync();
        let disk = self.small_disk.as_ref().context("the service has no small disk")?;
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
            eprintln!("the end of the log of the failed test's service:\n{}", self.log_tail());
        }
        if let Err(error) = self.kill() {
            eprintln!("the service could not be killed: {error:#}");
        }
        network::remove(&self.layout.data);
        unmount_lxcfs(&self.layout.run);
    }
}

/// A killed daemon leaves its lxcfs running, which ends when it is unmounted.
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

/// Loopback addresses with ports that are currently free. They are below the kernel's range of ephemeral ports: a
/// connection of another test would otherwise take the port before the service listens on it, or while it restarts.
fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let mut held: Vec<TcpListener> = Vec::new();
    for _ in 0..1000 {
        let port = rand::rng().random_range(10_000..32_000);
        held.extend(TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
        if held.len() == N {
            break;
        }
    }
    let addresses: Vec<SocketAddr> = held.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    addresses.try_into().map_err(|_| anyhow::anyhow!("not {N} addresses"))
}
