//! An S3 server on loopback whose objects are files below a directory, so that tests can count, damage and remove them.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::IgnorePoison;
use tempfile::TempDir;

use crate::options::workspace;
use crate::service::ServiceOptions;

const BUCKET: &str = "copies";
const PREFIX: &str = "some/prefix";
const KEY: &str = "test-key";
const SECRET: &str = "test-secret";
const FILE: &str = "snapshots.secret";
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Dropping it kills the server and removes the objects.
pub struct S3Server {
    root: TempDir,
    /// Has the secret that all services with this store share.
    secrets: TempDir,
    address: SocketAddr,
    process: Mutex<Option<Child>>,
}

impl S3Server {
    pub fn start() -> Result<Self> {
        let root = tempfile::tempdir()?;
        std::fs::create_dir(root.path().join(BUCKET))?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let secrets = tempfile::tempdir()?;
        let mut file =
            File::options().write(true).create_new(true).mode(0o600).open(secrets.path().join(FILE))?;
        writeln!(file, "{}", "5e".repeat(32))?;
        let server = Self { root, secrets, address, process: Mutex::default() };
        server.start_process()?;
        Ok(server)
    }

    pub fn start_process(&self) -> Result<()> {
        let program = workspace().join("target/s3/bin/s3s-fs");
        ensure!(program.exists(), "no {}: './dev test' installs it", program.display());
        // starts: target/s3/bin/s3s-fs
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &self.address.port().to_string()]);
        command.args(["--access-key", KEY, "--secret-key", SECRET]).arg(self.root.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        *self.process() = Some(child);
        let begin = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            ensure!(begin.elapsed() < START_TIMEOUT, "the S3 server did not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Ends it by SIGKILL.
    pub fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.process().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.process.lock().ignore_poison()
    }

    /// Options of a service that stores its snapshots here.
    pub fn options(&self, options: ServiceOptions) -> ServiceOptions {
        let text = |text: &str| format!("{text:?}");
        options
            .with("snapshots", "store", &text(&format!("s3://{BUCKET}/{PREFIX}")))
            .with("snapshots", "endpoint", &text(&format!("http://{}", self.address)))
            .with("snapshots", "access_key_id", &text(KEY))
            .with("snapshots", "secret_access_key", &text(SECRET))
            .with("snapshots", "secret_file", &text(&self.secrets.path().join(FILE).to_string_lossy()))
    }

    /// The directory of the server, with one for each bucket.
    pub fn directory(&self) -> &Path {
        self.root.path()
    }

    /// The URL of an object, and the arguments of curl for requests to it.
    pub fn curl(&self, object: &str) -> (String, Vec<String>) {
        // curl before 8 does not add the header, without which the server refuses requests.
        let signed = [
            "-sf",
            "--aws-sigv4",
            "aws:amz:us-east-1:s3",
            "-H",
            "x-amz-content-sha256: UNSIGNED-PAYLOAD",
            "-u",
        ];
        let signed = signed.map(str::to_owned);
        let arguments = signed.into_iter().chain([format!("{KEY}:{SECRET}")]).collect();
        (format!("http://{}/{BUCKET}/{object}", self.address), arguments)
    }

    /// The files of the objects, whose paths end like those of the objects.
    pub fn objects(&self) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        visit(&self.root.path().join(BUCKET), &mut all)?;
        // The server keeps metadata beside the buckets and in hidden files.
        all.retain(|path| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.')));
        Ok(all)
    }

    /// The objects that are chunks.
    pub fn chunks(&self) -> Result<Vec<PathBuf>> {
        let mut chunks = self.objects()?;
        chunks.retain(|path| path.components().any(|part| part.as_os_str() == "hosts"));
        Ok(chunks)
    }

    /// The manifests of snapshots by their ids.
    pub fn manifests(&self) -> Result<Vec<(String, serde_json::Value)>> {
        let mut objects = self.objects()?;
        objects.retain(|path| path.components().any(|part| part.as_os_str() == "snapshots"));
        objects.iter().map(|path| manifest(path)).collect()
    }
}

fn manifest(path: &Path) -> Result<(String, serde_json::Value)> {
    let text = std::fs::read_to_string(path)?;
    let (_, body) = text.split_once('\n').context("a manifest without a first line")?;
    let id = path.file_name().context("no file name")?.to_string_lossy().into_owned();
    Ok((id, serde_json::from_str(body)?))
}

fn visit(dir: &Path, all: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() { visit(&path, all)? } else { all.push(path) }
    }
    Ok(())
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}
