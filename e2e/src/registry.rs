//! An image registry with one small image. It sends half of the layer immediately and the rest when the test releases it. Used
//! by tests of the progress of pulls. Ends when dropped.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Bytes that are sent at a time until the release: a stalled transfer would be aborted.
const TRICKLE: usize = 256;
const TRICKLE_EVERY: Duration = Duration::from_millis(200);

/// The registry and its tasks.
pub struct SlowRegistry {
    /// The image's name in a configuration.
    pub reference: String,
    /// The digest of the image's manifest.
    pub digest: String,
    pub layer_bytes: u64,
    release: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

/// The blobs of an image with one layer.
pub(crate) struct Content {
    manifest: Vec<u8>,
    pub(crate) manifest_digest: String,
    config: Vec<u8>,
    config_digest: String,
    layer: Vec<u8>,
    layer_digest: String,
}

impl SlowRegistry {
    pub async fn start() -> Result<Self> {
        let content = Arc::new(Content::new()?);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let reference = format!("127.0.0.1:{}/slow:1", listener.local_addr()?.port());
        let (release, released) = watch::channel(false);
        let (digest, layer_bytes) = (content.manifest_digest.clone(), content.layer.len() as u64);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (content, released) = (Arc::clone(&content), released.clone());
                // A client that disconnects early is not an error of the registry.
                connections.spawn(async move { content.answer(stream, released).await.unwrap_or_default() });
            }
        });
        Ok(Self { reference, digest, layer_bytes, release, _tasks: tasks })
    }

    /// Sends the rest of the layer.
    pub fn release(&self) {
        self.release.send_replace(true);
    }
}

impl Content {
    fn new() -> Result<Self> {
        Self::with_mark("")
    }

    /// With a file `/mark`, so that the layer is another one.
    pub(crate) fn with_mark(mark: &str) -> Result<Self> {
        let root = tempfile::tempdir()?;
        tiny_root(root.path())?;
        std::fs::write(root.path().join("mark"), mark)?;
        let tar = Command::new("tar")
            .args(["--numeric-owner", "--owner=0", "--group=0", "-cf", "-", "."])
            .current_dir(root.path())
            .output()?;
        ensure!(tar.status.success(), "tar: {}", String::from_utf8_lossy(&tar.stderr));
        let layer = tar.stdout;
        let layer_digest = sha256(&layer)?;
        let architecture = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": { "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
        });
        let config = config.to_string().into_bytes();
        let config_digest = sha256(&config)?;
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": config_digest, "size": config.len() },
            "layers": [{ "mediaType": LAYER, "digest": layer_digest, "size": layer.len() }],
        });
        let manifest = manifest.to_string().into_bytes();
        let manifest_digest = sha256(&manifest)?;
        Ok(Self { manifest, manifest_digest, config, config_digest, layer, layer_digest })
    }

    /// The type and the text of the manifest.
    pub(crate) fn manifest(&self) -> (&'static str, Vec<u8>) {
        (MANIFEST, self.manifest.clone())
    }

    /// The type and the content of the blob with a digest.
    pub(crate) fn blob(&self, digest: &str) -> Option<(&'static str, Vec<u8>)> {
        let blobs = [(&self.config_digest, &self.config), (&self.layer_digest, &self.layer)];
        let found = blobs.into_iter().find(|(own, _)| *own == digest);
        found.map(|(_, blob)| ("application/octet-stream", blob.clone()))
    }

    /// Serves one request per connection.
    async fn answer(
        &self,
        mut stream: TcpStream,
        mut released: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < MAX_HEAD_BYTES {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head);
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (kind, digest, body): (&str, &str, &[u8]) = if path.trim_end_matches('/') == "/v2" {
            ("application/json", "", b"{}")
        } else if path.contains("/manifests/") {
            (MANIFEST, &self.manifest_digest, &self.manifest)
        } else if path.ends_with(&self.config_digest) {
            ("application/octet-stream", &self.config_digest, &self.config)
        } else if path.ends_with(&self.layer_digest) {
            ("application/octet-stream", &self.layer_digest, &self.layer)
        } else {
            let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return stream.write_all(not_found.as_bytes()).await;
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {digest}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        if method == "HEAD" {
            return Ok(());
        }
        let mut sent = if digest == self.layer_digest { body.len() / 2 } else { body.len() };
        stream.write_all(&body[..sent]).await?;
        while sent < body.len() && !*released.borrow() {
            let end = body.len().min(sent + TRICKLE);
            stream.write_all(&body[sent..end]).await?;
            sent = end;
            // The loop condition checks whether it was released.
            let _ = tokio::time::timeout(TRICKLE_EVERY, released.changed()).await;
        }
        stream.write_all(&body[sent..]).await?;
        stream.shutdown().await
    }
}

/// The digest in the form `sha256:…`.
fn sha256(bytes: &[u8]) -> Result<String> {
    let mut child = Command::new("sha256sum")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("sha256sum")?;
    child.stdin.take().context("no input")?.write_all(bytes)?;
    let stdout = String::from_utf8(child.wait_with_output()?.stdout)?;
    let digest = stdout.split_whitespace().next().context("sha256sum printed nothing")?;
    Ok(format!("sha256:{digest}"))
}

/// Creates a root file system with bash and a few tools, copied from this host.
pub fn tiny_root(dir: &Path) -> Result<()> {
    let script = r#"
        set -eu
        mkdir -p "$1"/{bin,dev,proc,sys,tmp,etc,root}
        for program in bash cat sleep mkdir; do
          real=$(readlink -f "$(command -v $program)")
          cp "$real" "$1/bin/$program"
          ldd "$real" | grep -o '/[^ )]*' | while read -r library; do
            mkdir -p "$1$(dirname "$library")"
            cp -L "$library" "$1$library"
          done
        done
        ln -sf bash "$1/bin/sh"
        echo 'root:x:0:0:root:/root:/bin/bash' > "$1/etc/passwd"
    "#;
    let output = Command::new("bash").args(["-c", script, "tiny_root"]).arg(dir).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
