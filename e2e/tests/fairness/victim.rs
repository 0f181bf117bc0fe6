//! The victim: a client of another account, with a sandbox of its own.
//!
//! Nothing is retried. Each refusal counts, also one that names a time to wait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::service::{Client, SANDBOXES, Service, small, with};
use http_body_util::{BodyExt, Empty};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use sandboxd_client::{Sandbox, TerminalEvent};
use serde_json::{Value, json};

use crate::figures::{Operation, Samples};
use crate::outside::Outside;
use crate::programs::{self, program};

/// An operation that takes longer counts as refused.
const TIMEOUT: Duration = Duration::from_secs(90);
const FILE_BYTES: usize = 4 << 20;
const PAGE_BYTES: usize = 2 << 20;
const PORT: u16 = 8080;
const RATE_MB: usize = 32;
const INSIDE_MB: usize = 512;

/// Megabytes per second.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub uploads: f64,
    pub inside: f64,
}

pub struct Victim {
    service: Arc<Service>,
    client: Client,
    sandbox: Sandbox,
    id: String,
    isolation: api::Isolation,
    /// The host name of its exposed port.
    port_host: String,
    /// The command of [`Operation::Execute`].
    probe: String,
}

impl Victim {
    /// Creates its sandbox, with a server that listens in it.
    pub async fn new(service: Arc<Service>, isolation: api::Isolation) -> Result<Self> {
        let client = service.account().await?;
        let created = client.post(SANDBOXES, &body(isolation)).await?.is(201)?;
        let id = text(&created["id"])?;
        let key = client.key().to_owned();
        let library = sandboxd_client::Client::builder()
            .url(format!("https://{}", service.address))
            .key(key)
            .retries(0)
            .certificate_file(service.certificate_file()?)
            .build()?;
        let sandbox = library.sandbox(&id)?;
        let mut victim =
            Self { service, client, sandbox, id, isolation, port_host: String::new(), probe: String::new() };
        victim.prepare().await?;
        Ok(victim)
    }

    async fn prepare(&mut self) -> Result<()> {
        let files = [
            ("server.pl", programs::SERVER),
            ("probe.pl", programs::PROBE),
            ("transfer.pl", programs::TRANSFER),
        ];
        for (name, content) in files {
            self.put(name, program(content).into_bytes()).await?;
        }
        self.run("perl server.pl > server.log 2>&1 &").await?;
        let port = json!({ "port": PORT, "visibility": "public" });
        let exposed = self.client.post(&self.path("ports"), &port).await?.is(201)?;
        let url = text(&exposed["url"])?;
        let host = url.strip_prefix("https://").and_then(|host| host.rsplit_once(':'));
        self.port_host = host.context("a URL without a port")?.0.to_owned();
        let begun = Instant::now();
        while let Err(error) = self.page().await {
            ensure!(begun.elapsed() < TIMEOUT, "the server does not listen: {error:#}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // What this isolation or the service refuses in any case.
        let refused = self.run("perl probe.pl").await?;
        let missing: Vec<&str> =
            refused.split("; ").filter_map(|refusal| Some(refusal.split_once(": ")?.0)).collect();
        println!("the victim's isolation lacks: {missing:?}");
        self.probe = format!("perl probe.pl {}", missing.join(","));
        Ok(())
    }

    /// Everything that it does, once.
    pub async fn round(&self, samples: &mut Samples) {
        samples.rounds += 1;
        samples.add(Operation::Create, in_time(self.create()).await);
        samples.add(Operation::Execute, in_time(timed(self.execute())).await);
        samples.add(Operation::Terminal, in_time(timed(self.terminal())).await);
        samples.add(Operation::Upload, in_time(timed(self.put("file", vec![b'u'; FILE_BYTES]))).await);
        samples.add(Operation::Download, in_time(timed(self.download())).await);
        samples.add(Operation::Page, in_time(timed(self.page())).await);
        samples.add(Operation::Outside, in_time(timed(self.outside())).await);
    }

    /// How fast it uploads, and how fast programs in its sandbox send to each other over TCP.
    pub async fn rates(&self) -> Result<Rates> {
        let begun = Instant::now();
        self.put("large", vec![b'u'; RATE_MB << 20]).await?;
        let uploads = RATE_MB as f64 / begun.elapsed().as_secs_f64();
        let inside = self.run(&format!("perl transfer.pl {INSIDE_MB}")).await?;
        Ok(Rates { uploads, inside: inside.parse().with_context(|| format!("not a number: {inside}"))? })
    }

    fn path(&self, verb: &str) -> String {
        format!("{SANDBOXES}/{}/{verb}", self.id)
    }

    /// The time until another sandbox runs. It is terminated at once, which must not fail either.
    async fn create(&self) -> Result<Duration> {
        let begun = Instant::now();
        let created = self.client.post(SANDBOXES, &body(self.isolation)).await?.is(201)?;
        let took = begun.elapsed();
        let path = format!("{SANDBOXES}/{}", text(&created["id"])?);
        self.client.delete(&path).await?.is(200).context("terminating it")?;
        Ok(took)
    }

    /// A command that takes a little of everything that the host's kernel may run out of.
    async fn execute(&self) -> Result<()> {
        let refused = self.run(&self.probe).await?;
        ensure!(refused == "ok", "inside: {refused}");
        Ok(())
    }

    /// The output of a command, which must succeed.
    async fn run(&self, command: &str) -> Result<String> {
        let result =
            self.client.post(&self.path("execute"), &json!({ "command": command })).await?.is(200)?;
        ensure!(result["exitCode"] == 0, "{command}: {result}");
        Ok(text(&result["stdout"])?.trim().to_owned())
    }

    async fn terminal(&self) -> Result<()> {
        let mut terminal = self.sandbox.terminal().size(80, 24).await?;
        terminal.write("echo from-\"\"terminal; exit 7\r").await?;
        let mut screen = String::new();
        loop {
            match terminal.next().await? {
                Some(TerminalEvent::Bytes(bytes)) => screen.push_str(&String::from_utf8_lossy(&bytes)),
                Some(TerminalEvent::Ended(ended)) => {
                    ensure!(ended.exit_code == Some(7) && screen.contains("from-terminal"), "{screen:?}");
                    return Ok(());
                }
                Some(_) => {}
                None => bail!("the stream ended early: {screen:?}"),
            }
        }
    }

    async fn put(&self, name: &str, content: Vec<u8>) -> Result<()> {
        let path = format!("{}?path={name}", self.path("files"));
        let call = self.client.call(Method::PUT, &path).body("application/octet-stream", content);
        call.send().await?.is(200)?;
        Ok(())
    }

    /// Reads the file that the last upload wrote.
    async fn download(&self) -> Result<()> {
        let response = self.client.get(&format!("{}?path=file", self.path("files"))).await?;
        ensure!(response.status == 200, "status {}: {}", response.status, response.text());
        ensure!(response.body.len() == FILE_BYTES, "{} bytes", response.body.len());
        Ok(())
    }

    async fn page(&self) -> Result<()> {
        let stream = self.service.tls(&self.port_host, &["http/1.1"]).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::get("/").header("host", &self.port_host).body(Empty::<bytes::Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status == 200, "status {status}: {}", String::from_utf8_lossy(&body));
        ensure!(body.len() == PAGE_BYTES, "{} bytes", body.len());
        Ok(())
    }

    async fn outside(&self) -> Result<()> {
        self.run(&format!("curl -sS --fail --max-time 60 -o /dev/null {}", Outside::url())).await?;
        Ok(())
    }
}

/// The body of a create.
pub fn body(isolation: api::Isolation) -> Value {
    with(small(), "isolation", json!(isolation))
}

pub fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().with_context(|| format!("not a string: {value}"))?.to_owned())
}

async fn timed(work: impl Future<Output = Result<()>>) -> Result<Duration> {
    let begun = Instant::now();
    work.await?;
    Ok(begun.elapsed())
}

async fn in_time(work: impl Future<Output = Result<Duration>>) -> Result<Duration> {
    let done = tokio::time::timeout(TIMEOUT, work).await;
    done.with_context(|| format!("took more than {TIMEOUT:?}"))?
}
