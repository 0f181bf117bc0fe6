//! A Docker Engine for one run: `containerd` and `dockerd` with all state below two directories, without network.
//!
//! Stopping removes processes, mounts, cgroups and files. A bench that is killed leaves them under names that begin with
//! `sandboxd-bench`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::http::Client;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Storage drivers, tried in order: the first is the default, the second works on any host.
const STORAGE: [&str; 2] = ["overlay2", "vfs"];

/// Files that these programs create outside of the configured directories.
const EXTERNAL_FILES: [&str; 4] =
    ["/etc/docker/key.json", "/run/docker", "/run/containerd", "/opt/containerd"];

pub struct Daemon {
    name: String,
    /// Images and containers.
    data: PathBuf,
    /// Sockets, logs and state; short, since a socket's path may not be long.
    run: PathBuf,
    containerd: Child,
    dockerd: Child,
    /// The files of [`EXTERNAL_FILES`] that did not exist before.
    external: Vec<&'static str>,
}

impl Daemon {
    pub async fn start() -> Result<Self> {
        let name = format!("sandboxd-bench-{}", std::process::id());
        let run = Path::new("/run").join(&name);
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/test-data").join(&name);
        fs::create_dir_all(&run)?;
        fs::create_dir_all(&data)?;
        let data = data.canonicalize()?;
        let external: Vec<_> = EXTERNAL_FILES.into_iter().filter(|path| !Path::new(path).exists()).collect();
        let mut containerd = spawn_containerd(&run, &data)?;
        wait_for(&mut containerd, &run.join("containerd.log"), || async {
            run.join("containerd.sock").exists()
        })
        .await?;
        let mut last = None;
        for storage in STORAGE {
            let mut dockerd = spawn_dockerd(&name, &run, &data.join(storage), storage)?;
            let client = Client::new(run.join("docker.sock"));
            let answers = || async { client.request("GET", "/_ping", None).await.is_ok() };
            match wait_for(&mut dockerd, &run.join("dockerd.log"), answers).await {
                Ok(()) => return Ok(Self { name, data, run, containerd, dockerd, external }),
                Err(error) => {
                    eprintln!("bench: Docker does not start with its storage driver {storage}");
                    last = Some(error);
                    dockerd.kill().await?;
                }
            }
        }
        containerd.kill().await?;
        clear(&name, &run, &data, &external)?;
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no storage driver to try")))
    }

    pub fn socket(&self) -> PathBuf {
        self.run.join("docker.sock")
    }

    pub async fn stop(mut self) -> Result<()> {
        end(&mut self.dockerd).await.context("ending dockerd")?;
        end(&mut self.containerd).await.context("ending containerd")?;
        end_shims(&self.run)?;
        clear(&self.name, &self.run, &self.data, &self.external)
    }
}

fn spawn_containerd(run: &Path, data: &Path) -> Result<Child> {
    let config = run.join("containerd.toml");
    // A separate file, so that the host's configuration is not used.
    fs::write(&config, "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n")?;
    let log = File::create(run.join("containerd.log"))?;
    Command::new("containerd")
        .arg("--config")
        .arg(config)
        .arg("--root")
        .arg(data.join("containerd"))
        .arg("--state")
        .arg(run.join("containerd"))
        .arg("--address")
        .arg(run.join("containerd.sock"))
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("starting containerd")
}

fn spawn_dockerd(name: &str, run: &Path, data: &Path, storage: &str) -> Result<Child> {
    let log = File::create(run.join("dockerd.log"))?;
    let config = run.join("dockerd.json");
    fs::write(&config, "{}")?;
    Command::new("dockerd")
        .arg("--config-file")
        .arg(config)
        .arg("--data-root")
        .arg(data)
        .arg("--exec-root")
        .arg(run.join("docker"))
        .arg("--pidfile")
        .arg(run.join("dockerd.pid"))
        .arg("--host")
        .arg(format!("unix://{}", run.join("docker.sock").display()))
        .arg("--containerd")
        .arg(run.join("containerd.sock"))
        .arg(format!("--storage-driver={storage}"))
        .arg(format!("--cgroup-parent=/{name}"))
        .args([
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
            "--bridge=none",
        ])
        .args(["--userland-proxy=false", "--log-level=warn"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .context("starting dockerd")
}

async fn wait_for<F: Future<Output = bool>>(
    child: &mut Child,
    log: &Path,
    ready: impl Fn() -> F,
) -> Result<()> {
    let begin = Instant::now();
    while !ready().await {
        if let Some(status) = child.try_wait()? {
            let text = fs::read_to_string(log).unwrap_or_default();
            bail!("the daemon ended with {status}: {}", text.lines().last().unwrap_or_default());
        }
        ensure!(
            begin.elapsed() < START_TIMEOUT,
            "the daemon was not ready after {} s",
            START_TIMEOUT.as_secs()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Ends a process by SIGTERM, or by SIGKILL after a timeout.
async fn end(child: &mut Child) -> Result<()> {
    let Some(pid) = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())) else { return Ok(()) };
    kill_process(pid, Signal::TERM)?;
    if tokio::time::timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(())
}

/// Ends the shims, which outlive both daemons. Their command lines contain the daemon's address.
fn end_shims(run: &Path) -> Result<()> {
    let address = run.join("containerd.sock").display().to_string();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if words.split(|byte| *byte == 0).any(|word| word == address.as_bytes()) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}

fn clear(name: &str, run: &Path, data: &Path, external: &[&str]) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let points: Vec<&str> = mounts.lines().filter_map(|line| line.split_whitespace().nth(4)).collect();
    // Unmount in reverse order.
    for point in points
        .into_iter()
        .rev()
        .filter(|point| Path::new(point).starts_with(run) || Path::new(point).starts_with(data))
    {
        unmount(point, UnmountFlags::DETACH).with_context(|| format!("unmounting {point}"))?;
    }
    for dir in [run, data] {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    for path in external.iter().map(Path::new).filter(|path| path.exists()) {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        removed.with_context(|| format!("removing {}", path.display()))?;
    }
    let hierarchies = fs::read_dir("/sys/fs/cgroup")?.flatten().map(|entry| entry.path());
    for hierarchy in hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]) {
        remove_cgroup(&hierarchy.join(name))?;
    }
    Ok(())
}

fn remove_cgroup(dir: &Path) -> Result<()> {
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(dir)?.flatten().filter(|entry| entry.path().is_dir()) {
        remove_cgroup(&entry.path())?;
    }
    fs::remove_dir(dir).with_context(|| format!("removing {}", dir.display()))
}
