//! `runc run` with the bundle of a sandbox, in which `true` replaces the agent.
//!
//! The bundle's root must be mounted without affecting the host: a worker process of this program, in a separate mount namespace,
//! mounts the same layers and runs the runtime on request. Its end unmounts everything.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use async_trait::async_trait;
use e2e::Rig;
use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::subject::{Measured, Subject};

/// The hidden subcommand that runs the worker.
pub const WORKER: &str = "__runc-worker";
pub const RUNC: &str = "/usr/sbin/runc";

pub struct Runc {
    bench: &'static str,
    /// Killed when dropped.
    _worker: Child,
    requests: ChildStdin,
    responses: Lines<BufReader<ChildStdout>>,
}

impl Runc {
    /// Creates a sandbox, copies its bundle, and starts the worker. The rig uses runc.
    pub async fn start(bench: &'static str, rig: &Rig) -> Result<Self> {
        let dir = rig.run.join("runc-bench");
        let id = rig.create().await.context("creating a sandbox for its bundle")?;
        let sandbox_dir = rig.run.join("sandboxes").join(id.as_str());
        let written = fs::read(sandbox_dir.join("config.json"));
        rig.engine.sandbox("test", &id).terminate("request").await?;
        let mut config: Value = serde_json::from_slice(&written.context("reading its bundle")?)?;
        remove_covers(&rig.run.join("mounts"), &mut config);
        write_bundle(&dir, rig, config).with_context(|| format!("writing {}", dir.display()))?;
        let mut worker = tokio::process::Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe()?)
            .args([WORKER.as_ref(), dir.as_os_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting unshare (package util-linux)")?;
        let requests = worker.stdin.take().context("the worker has no standard input")?;
        let responses = worker.stdout.take().context("the worker has no standard output")?;
        Ok(Self { bench, _worker: worker, requests, responses: BufReader::new(responses).lines() })
    }
}

/// Removes the mounts whose sources exist only in the namespace of a start: `runc` is measured without the covers of `/sys`.
fn remove_covers(place: &Path, config: &mut Value) {
    let is_cover =
        |mount: &Value| mount["source"].as_str().is_some_and(|source| Path::new(source).starts_with(place));
    if let Some(mounts) = config["mounts"].as_array_mut() {
        mounts.retain(|mount| !is_cover(mount));
    }
}

/// Writes the bundle and `layers`, a file with the paths of the layers, topmost first.
fn write_bundle(dir: &Path, rig: &Rig, mut config: Value) -> Result<()> {
    let root = dir.join("rootfs");
    config["process"]["args"] = json!(["true"]);
    config["process"]["env"] = json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
    config["root"]["path"] = json!(root);
    config["linux"]["cgroupsPath"] = json!(format!("/{}/runc-bench", rig.name));
    for part in [dir, &root, &dir.join("state"), &dir.join("changes")] {
        fs::create_dir_all(part)?;
        // Accessible to the container's root, which is an unprivileged user on the host.
        fs::set_permissions(part, fs::Permissions::from_mode(0o711))?;
    }
    fs::write(dir.join("config.json"), serde_json::to_vec(&config)?)?;
    let layers: Vec<String> =
        rig.template.layers.iter().map(|layer| layer.to_string_lossy().into_owned()).collect();
    Ok(fs::write(dir.join("layers"), layers.join(":"))?)
}

#[async_trait]
impl Subject for Runc {
    fn name(&self) -> &'static str {
        "runc"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        self.requests.write_all(b"run\n").await.context("writing to the worker")?;
        let answer = self.responses.next_line().await?.context("the worker ended")?;
        let nanoseconds = answer.parse().with_context(|| format!("the worker printed {answer:?}"))?;
        Ok(vec![(self.bench, Duration::from_nanos(nanoseconds))])
    }
}

/// The worker's loop: one run and one response per line, until its input ends.
pub fn work(dir: &Path) -> Result<()> {
    let changes = dir.join("changes");
    mount("tmpfs", &changes, "tmpfs", MountFlags::empty(), None).context("mounting the upper directory")?;
    for part in ["upper", "work"] {
        fs::create_dir(changes.join(part))?;
    }
    let layers = fs::read_to_string(dir.join("layers"))?;
    let options = format!("lowerdir={layers},upperdir={0}/upper,workdir={0}/work", changes.display());
    let options = std::ffi::CString::new(options)?;
    mount("overlay", dir.join("rootfs"), "overlay", MountFlags::NODEV, options.as_c_str())
        .context("mounting the bundle's root")?;
    for request in std::io::stdin().lock().lines() {
        ensure!(request? == "run", "the only request is 'run'");
        let took = run_once(dir)?;
        writeln!(std::io::stdout(), "{}", took.as_nanos())?;
    }
    Ok(())
}

fn run_once(dir: &Path) -> Result<Duration> {
    let mut command = std::process::Command::new(PathBuf::from(RUNC));
    command.arg("--root").arg(dir.join("state")).arg("run").arg("--bundle").arg(dir).arg("runc-bench");
    command.stdin(Stdio::null());
    let begin = Instant::now();
    let output = command.output().context("running runc")?;
    let took = begin.elapsed();
    if !output.status.success() {
        bail!("runc: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(took)
}
