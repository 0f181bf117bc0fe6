//! Copies of a snapshot with 100 MB of new data in an object store on loopback: until the copy is complete, until that of a second snapshot
//! is with 1 MB of changes, and a create from it on another service. The peer sends and fetches as much data by curl, as one object.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use async_trait::async_trait;
use e2e::s3::S3Server;
use e2e::service::Service as Process;
use hyper::Method;
use serde_json::{Value, json};

use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::{Service, with_configured_service};
use crate::subject::{Measured, Subject, interleave};

pub const NAMES: [&str; 3] = ["store", "store-changes", "fetch"];
const ROUNDS: usize = 10;
const POLL: Duration = Duration::from_millis(2);

pub async fn run() -> Result<Vec<Row>> {
    let s3 = S3Server::start()?;
    // Hidden from the server, which serves directories.
    let file = s3.directory().join(".file");
    with_configured_service(
        |options| s3.options(options),
        async |one: &Service| {
            with_configured_service(
                |options| s3.options(options),
                async |two: &Service| {
                    let (one, two) = (one.target().connect().await?, two.target().connect().await?);
                    let peer = Curl::new(&s3, file).await?;
                    let mut subjects: Vec<Box<dyn Subject + '_>> =
                        vec![Box::new(Ours { one, two }), Box::new(peer)];
                    interleave(ROUNDS, &mut subjects).await
                },
            )
            .await
        },
    )
    .await
}

struct Ours {
    one: Connection,
    two: Connection,
}

impl Ours {
    async fn run(connection: &mut Connection, id: &str, command: &str) -> Result<Value> {
        let path = format!("/v1/sandboxes/{id}/execute");
        let result = connection.json(Method::POST, &path, Some(&json!({ "command": command }))).await?;
        ensure!(result["exitCode"] == 0, "{command}: {result}");
        Ok(result)
    }

    /// Takes a snapshot, and waits for its copy.
    async fn store(&mut self, id: &str) -> Result<(String, Duration)> {
        let path = format!("/v1/sandboxes/{id}/snapshots");
        let begin = Instant::now();
        let taken = self.one.json(Method::POST, &path, Some(&json!({}))).await?;
        let id = taken["id"].as_str().context("a snapshot without an id")?.to_owned();
        let path = format!("/v1/snapshots/{id}");
        while self.one.json(Method::GET, &path, None).await?["storage"] != "stored" {
            tokio::time::sleep(POLL).await;
        }
        Ok((id, begin.elapsed()))
    }
}

fn create(image: &str) -> Value {
    json!({ "image": image, "timeoutMs": 3_600_000, "idleTimeoutMs": 0 })
}

#[async_trait]
impl Subject for Ours {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let sandbox = self.one.json(Method::POST, "/v1/sandboxes", Some(&create(Process::image()))).await?;
        let id = sandbox["id"].as_str().context("a sandbox without an id")?.to_owned();
        Self::run(&mut self.one, &id, "head -c 100M /dev/urandom > data; sync").await?;
        let (first, stored) = self.store(&id).await?;
        Self::run(&mut self.one, &id, "head -c 1M /dev/urandom > changes; sync").await?;
        let (second, again) = self.store(&id).await?;
        let begin = Instant::now();
        let copy = self.two.json(Method::POST, "/v1/sandboxes", Some(&create(&second))).await?;
        let fetched = begin.elapsed();
        let copy = copy["id"].as_str().context("a sandbox without an id")?.to_owned();
        let size = Self::run(&mut self.two, &copy, "stat -c %s data changes").await?;
        ensure!(size["stdout"] == "104857600\n1048576\n", "{size}");
        self.two.json(Method::DELETE, &format!("/v1/sandboxes/{copy}"), None).await?;
        self.one.json(Method::DELETE, &format!("/v1/sandboxes/{id}"), None).await?;
        for snapshot in [first, second] {
            self.one.json(Method::DELETE, &format!("/v1/snapshots/{snapshot}"), None).await?;
        }
        // Removals must not overlap with the next subject.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(vec![("store", stored), ("store-changes", again), ("fetch", fetched)])
    }
}

/// curl, which sends a file as one object.
struct Curl {
    url: String,
    arguments: Vec<String>,
    file: PathBuf,
}

impl Curl {
    async fn new(s3: &S3Server, file: PathBuf) -> Result<Self> {
        let written = format!("head -c 100M /dev/urandom > {}", file.display());
        // starts: bash
        let mut bash = tokio::process::Command::new("bash");
        ensure!(bash.args(["-c", &written]).stdin(Stdio::null()).status().await?.success(), "{written}");
        let (url, arguments) = s3.curl("file");
        Ok(Self { url, arguments, file })
    }

    async fn request(&self, more: &[&str]) -> Result<Duration> {
        let begin = Instant::now();
        // starts: curl
        let mut curl = tokio::process::Command::new("curl");
        curl.args(&self.arguments).args(more).arg(&self.url).stdin(Stdio::null()).stdout(Stdio::null());
        ensure!(curl.kill_on_drop(true).status().await?.success(), "curl failed");
        Ok(begin.elapsed())
    }
}

#[async_trait]
impl Subject for Curl {
    fn name(&self) -> &'static str {
        "curl"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let file = self.file.display().to_string();
        let sent = self.request(&["-T", &file]).await?;
        let fetched = self.request(&["-o", &file]).await?;
        Ok(vec![("store", sent), ("fetch", fetched)])
    }
}
