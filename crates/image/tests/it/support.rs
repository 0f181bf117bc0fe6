//! A registry on loopback, a proxy that counts requests and injects failures, images to push, and an image store to
//! pull into.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use image::{
    Catalogue, ClientPull, ImageError, Images, Options, ProgressFn, PullQuota, RegistryOptions, SourceFailure,
};
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use rules::{PullQuotaReached, PulledBytes, TimeMs};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub fn sha256(bytes: &[u8]) -> String {
    let hex = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>();
    format!("sha256:{hex}")
}

pub fn silent() -> ProgressFn {
    Arc::new(|_| ())
}

/// The daily quota of each account.
pub struct Quota {
    pub allowed: u64,
    pulled: Mutex<PulledBytes>,
}

impl Quota {
    pub fn new(allowed: u64) -> Self {
        Self { allowed, pulled: Mutex::default() }
    }

    pub fn taken(&self, account: &str) -> u64 {
        self.pulled.lock().unwrap().accounts().get(account).copied().unwrap_or(0)
    }
}

impl PullQuota for Quota {
    fn check(&self, account: &str, bytes: u64) -> Result<(), PullQuotaReached> {
        self.pulled.lock().unwrap().check(account, bytes, self.allowed, TimeMs(1))
    }

    fn take(&self, account: &str, bytes: u64) -> Result<(), PullQuotaReached> {
        self.pulled.lock().unwrap().take(account, bytes, self.allowed, TimeMs(1))
    }
}

/// A pull of an account with this quota.
pub fn pull_of(account: &str, quota: &Arc<Quota>) -> ClientPull {
    let quota: Arc<dyn PullQuota> = Arc::<Quota>::clone(quota);
    ClientPull { account: account.into(), quota, max_unpacked_bytes: None, min_free_bytes: 0 }
}

/// A pull of an account without a quota.
pub fn client() -> ClientPull {
    pull_of("one", &Arc::new(Quota::new(0)))
}

pub fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

/// A `docker-registry`, which is killed on drop.
pub struct Registry {
    child: Child,
    pub dir: TempDir,
    pub port: u16,
    auth: RegistryAuth,
}

pub const USER: &str = "alice";
pub const PASSWORD: &str = "secret-password";
/// bcrypt of [`PASSWORD`].
const HTPASSWD: &str = "alice:$2b$05$abcdefghijklmnopqrstuu8jXihDn6YyI16dkpSl33R.slyuyqYCi\n";

impl Registry {
    pub async fn start() -> Self {
        Self::start_with(RegistryAuth::Anonymous).await
    }

    pub async fn start_protected() -> Self {
        Self::start_with(RegistryAuth::Basic(USER.to_owned(), PASSWORD.to_owned())).await
    }

    async fn start_with(auth: RegistryAuth) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let data = dir.path().join("data");
        let mut config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n",
            data.display()
        );
        if auth != RegistryAuth::Anonymous {
            let file = dir.path().join("htpasswd");
            std::fs::write(&file, HTPASSWD).unwrap();
            config += &format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", file.display());
        }
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(dir.path().join("config.yml"))
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is installed (package docker-registry)");
        let registry = Self { child, dir, port, auth };
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(20), "docker-registry does not answer");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        registry
    }

    fn client(&self) -> Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client::try_from(ClientConfig { protocol: ClientProtocol::Http, ..ClientConfig::default() }).unwrap()
    }

    /// Pushes blobs and a manifest as `name` (such as `team/app:1`). Returns the manifest's digest.
    pub async fn push(&self, name: &str, blobs: &[&[u8]], manifest: &serde_json::Value) -> String {
        let reference: Reference = format!("127.0.0.1:{}/{name}", self.port).parse().unwrap();
        let client = self.client();
        client.auth(&reference, &self.auth, RegistryOperation::Push).await.unwrap();
        for blob in blobs {
            client.push_blob(&reference, blob.to_vec(), &sha256(blob)).await.unwrap();
        }
        let text = manifest.to_string();
        let kind = manifest["mediaType"].as_str().unwrap().parse().unwrap();
        client.push_manifest_raw(&reference, text.clone().into_bytes(), kind).await.unwrap();
        sha256(text.as_bytes())
    }

    pub async fn push_image(&self, name: &str, image: &TestImage) -> String {
        let mut blobs: Vec<&[u8]> = image.layers.iter().map(|layer| layer.packed.as_slice()).collect();
        let config = image.config();
        blobs.push(&config);
        self.push(name, &blobs, &image.manifest()).await
    }

    /// Changes a stored blob on the registry's disk.
    pub fn tamper(&self, digest: &str) {
        let hex = digest.trim_start_matches("sha256:");
        let data = self
            .dir
            .path()
            .join("data/docker/registry/v2/blobs/sha256")
            .join(&hex[..2])
            .join(hex)
            .join("data");
        let mut bytes = std::fs::read(&data).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(data, bytes).unwrap();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// What the proxy does with a request.
#[derive(Debug, Clone, Copy)]
pub enum Action {
    Pass,
    Status(u16),
    /// Closes the connection without a response.
    Hang,
    /// Closes the connection after this many bytes of the response.
    Cut(usize),
    /// Stalls after this many bytes of the response, until the client disconnects.
    Stall(usize),
}

type Decide = Box<dyn FnMut(&str) -> Action + Send>;

/// A proxy with one request per connection, which records all request lines.
pub struct Proxy {
    pub port: u16,
    pub seen: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub async fn start(upstream: u16, decide: impl FnMut(&str) -> Action + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let decide: Arc<Mutex<Decide>> = Arc::new(Mutex::new(Box::new(decide)));
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (log, decide) = (log.clone(), decide.clone());
                connections.spawn(async move {
                    // A client that disconnects is not an error of the proxy.
                    let _ = relay(client, upstream, &log, &decide).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { port, seen, task }
    }

    pub async fn counting(upstream: u16) -> Self {
        Self::start(upstream, |_| Action::Pass).await
    }

    pub fn count(&self, part: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|line| line.contains(part)).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(
    mut client: TcpStream,
    upstream: u16,
    log: &Mutex<Vec<String>>,
    decide: &Mutex<Decide>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let range = head.lines().find(|line| line.to_ascii_lowercase().starts_with("range:")).unwrap_or_default();
    let line = format!("{} {range}", head.lines().next().unwrap_or_default());
    log.lock().unwrap().push(line.clone());
    let action = (decide.lock().unwrap())(&line);
    let limit = match action {
        Action::Hang => return Ok(()),
        Action::Status(code) => {
            let answer = format!("HTTP/1.1 {code} Broken\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return client.write_all(answer.as_bytes()).await;
        }
        Action::Pass => usize::MAX,
        Action::Cut(limit) | Action::Stall(limit) => limit,
    };
    let mut server = TcpStream::connect(("127.0.0.1", upstream)).await?;
    server.write_all(head.as_bytes()).await?;
    let mut left = limit;
    let mut buffer = vec![0; 16_384];
    while left > 0 {
        let want = buffer.len().min(left);
        let n = server.read(&mut buffer[..want]).await?;
        if n == 0 {
            return Ok(());
        }
        client.write_all(&buffer[..n]).await?;
        left -= n;
    }
    if matches!(action, Action::Stall(_)) {
        client.read_u8().await?; // ends when the client goes
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

#[derive(Clone)]
pub struct Layer {
    pub packed: Vec<u8>,
    pub diff_id: String,
    media_type: &'static str,
}

impl Layer {
    pub fn new(tar: &[u8], packing: Packing) -> Self {
        let (packed, media_type) = match packing {
            Packing::Plain => (tar.to_vec(), "application/vnd.oci.image.layer.v1.tar"),
            Packing::Gzip => {
                let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
                gzip.write_all(tar).unwrap();
                (gzip.finish().unwrap(), "application/vnd.oci.image.layer.v1.tar+gzip")
            }
            Packing::Zstd => {
                (zstd::encode_all(tar, 1).unwrap(), "application/vnd.oci.image.layer.v1.tar+zstd")
            }
        };
        Self { packed, diff_id: sha256(tar), media_type }
    }

    pub fn digest(&self) -> String {
        sha256(&self.packed)
    }
}

/// An image of one manifest, lowest layer first.
#[derive(Clone)]
pub struct TestImage {
    pub layers: Vec<Layer>,
    pub architecture: &'static str,
}

impl TestImage {
    pub fn new(layers: Vec<Layer>) -> Self {
        Self { layers, architecture: architecture() }
    }

    pub fn config(&self) -> Vec<u8> {
        let diff_ids: Vec<_> = self.layers.iter().map(|layer| layer.diff_id.clone()).collect();
        let value = serde_json::json!({
            "architecture": self.architecture, "os": "linux",
            "config": {"Env": ["PATH=/opt/bin:/bin", "LANG=C"], "WorkingDir": "/srv", "User": "app"},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}
        });
        value.to_string().into_bytes()
    }

    pub fn manifest(&self) -> serde_json::Value {
        let config = self.config();
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|l| serde_json::json!({"mediaType": l.media_type, "digest": l.digest(), "size": l.packed.len()}))
            .collect();
        serde_json::json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": sha256(&config), "size": config.len()},
            "layers": layers
        })
    }
}

/// A tar of files: a name that ends in `/` is a directory.
pub fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        let dir = name.ends_with('/');
        header.set_entry_type(if dir { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(if dir { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        header.set_size(data.len() as u64);
        tar.append_data(&mut header, name, *data).unwrap();
    }
    tar.into_inner().unwrap()
}

/// Incompressible bytes.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    })
    .take(len)
    .collect()
}

/// An image store in a temporary directory.
pub struct TestStore {
    pub dir: TempDir,
}

impl TestStore {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    pub fn options(&self) -> Options {
        let registry = RegistryOptions {
            docker_config: Some(self.dir.path().join("config.json")),
            back_off: Duration::from_millis(5),
            ..RegistryOptions::default()
        };
        Options { registry, ..Options::default() }
    }

    pub fn open(&self, names: &[(&str, &[&str])]) -> Images {
        self.open_with(names, self.options())
    }

    pub fn open_with(&self, names: &[(&str, &[&str])], options: Options) -> Images {
        let mut catalogue = Catalogue::default();
        for (name, sources) in names {
            catalogue.set(name, sources).unwrap();
        }
        Images::open(&self.root(), catalogue, options).unwrap()
    }

    pub fn layer_names(&self) -> Vec<String> {
        names_in(&self.root().join("layers"))
    }

    /// Asserts that no layer, record or work directory is left.
    pub fn assert_empty(&self) {
        assert_eq!(self.layer_names(), Vec::<String>::new());
        assert_eq!(names_in(&self.root().join("images")), Vec::<String>::new());
        self.assert_no_work();
    }

    pub fn assert_no_work(&self) {
        for area in names_in(&self.root().join("tmp")) {
            assert_eq!(names_in(&self.root().join("tmp").join(area)), Vec::<String>::new());
        }
    }
}

pub fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The failures of an `ensure` that must fail.
pub fn failures(e: &ImageError) -> &[SourceFailure] {
    match e {
        ImageError::AllFailed { failures, .. } => failures,
        other => panic!("not all sources failed: {other}"),
    }
}

/// An image's layers as a sandbox sees them; unmounted on drop.
pub struct Mounted {
    dir: TempDir,
}

impl Mounted {
    pub fn new(layers: &[PathBuf]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["root", "upper", "work"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let lower = layers.iter().map(|layer| layer.to_str().unwrap()).collect::<Vec<_>>().join(":");
        let at = |name: &str| dir.path().join(name).display().to_string();
        let options = format!("lowerdir={lower},upperdir={},workdir={}", at("upper"), at("work"));
        let mounted =
            Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(at("root")).status();
        assert!(mounted.unwrap().success());
        if dir.path().join("root/dev").is_dir() {
            let null = Command::new("mknod")
                .args(["-m", "666"])
                .arg(dir.path().join("root/dev/null"))
                .args(["c", "1", "3"])
                .status();
            assert!(null.unwrap().success());
        }
        Self { dir }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path)
    }

    /// The output of a command in the root.
    pub fn run(&self, command: &str) -> String {
        let out = Command::new("chroot")
            .arg(self.path(""))
            .args(["/bin/sh", "-c", command])
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .output()
            .unwrap();
        assert!(out.status.success(), "{command}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(Command::new("umount").arg(self.path("")).status().unwrap().success());
    }
}
