//! The way of data to a sandbox's disk: an upload of 100 MB over HTTPS beside a command that writes as much, and work with
//! small files beside the same work under bwrap on the host's disk.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::SandboxId;
use async_trait::async_trait;
use bytes::Bytes;
use e2e::{Rig, RigOptions};
use hyper::Method;
use serde_json::json;

use super::Setup;
use super::files::{INSIDE, PIECE};
use crate::http::Connection;
use crate::report::{OURS, Row};
use crate::service::{Service, with_service};
use crate::subject::{Measured, Subject, interleave};
use crate::with_rig::with_rig;

pub const NAMES: [&str; 2] = ["upload", "small-files"];
const PIECES: u64 = 100;
const ROUNDS: usize = 20;
/// The work is timed by itself, so that starting a program is not measured.
const SMALL_FILES: &str = "cd /tmp; begin=${EPOCHREALTIME/./}; mkdir d; for n in {1..3000}; do echo content > d/$n; done; \
     cat d/* > /dev/null; rm -r d; echo $((${EPOCHREALTIME/./} - begin))";

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    if setup.wants(&NAMES[..1]) {
        rows.extend(upload().await.context("an upload")?);
    }
    if setup.wants(&NAMES[1..]) {
        rows.extend(small_files().await.context("small files")?);
    }
    Ok(rows)
}

async fn upload() -> Result<Vec<Row>> {
    with_service(async |service: &Service| {
        let mut connection = service.target().connect().await?;
        let sandbox = format!("/v1/sandboxes/{}", service.create(&mut connection).await?);
        let piece: Bytes = (0..PIECE).map(|n| (n % 251) as u8).collect::<Vec<_>>().into();
        let mut subjects: Vec<Box<dyn Subject + '_>> = vec![
            Box::new(Upload {
                service,
                connection: service.target().connect().await?,
                path: format!("{sandbox}/files?path=uploaded"),
                piece,
            }),
            Box::new(Inside { connection, path: format!("{sandbox}/execute") }),
        ];
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct Upload<'a> {
    service: &'a Service,
    connection: Connection,
    path: String,
    piece: Bytes,
}

#[async_trait]
impl Subject for Upload<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let begin = Instant::now();
        let entry = self.service.target().put(&self.path, self.piece.clone(), PIECES).await?;
        let took = begin.elapsed();
        // Under a new name each time: to replace a file costs its removal too.
        self.connection.json(Method::DELETE, &self.path, None).await?;
        ensure!(entry["sizeBytes"] == PIECES * PIECE as u64, "{entry}");
        Ok(vec![(NAMES[0], took)])
    }
}

struct Inside {
    connection: Connection,
    path: String,
}

#[async_trait]
impl Subject for Inside {
    fn name(&self) -> &'static str {
        INSIDE
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let body = json!({ "command": format!("rm -f written; dd if=/dev/zero of=written bs={PIECE} count={PIECES} status=none") });
        let begin = Instant::now();
        let result = self.connection.json(Method::POST, &self.path, Some(&body)).await?;
        let took = begin.elapsed();
        ensure!(result["exitCode"] == 0, "{result}");
        Ok(vec![(NAMES[0], took)])
    }
}

async fn small_files() -> Result<Vec<Row>> {
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let mut subjects: Vec<Box<dyn Subject + '_>> =
            vec![Box::new(InSandbox { rig, id: rig.create().await? })];
        let rootfs = e2e::rootfs()?;
        subjects.push(Box::new(UnderBwrap { rootfs, dir: rig.data.canonicalize()? }));
        interleave(ROUNDS, &mut subjects).await
    })
    .await
}

struct InSandbox<'a> {
    rig: &'a Rig,
    id: SandboxId,
}

#[async_trait]
impl Subject for InSandbox<'_> {
    fn name(&self) -> &'static str {
        OURS
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        timed_inside(&self.rig.output(&self.id, SMALL_FILES).await?)
    }
}

/// The directory of the work is on the host's disk, without an overlay.
struct UnderBwrap {
    rootfs: PathBuf,
    dir: PathBuf,
}

#[async_trait]
impl Subject for UnderBwrap {
    fn name(&self) -> &'static str {
        "bwrap"
    }

    async fn once(&mut self) -> Result<Vec<Measured>> {
        let mut command = std::process::Command::new("bwrap");
        command.args(["--unshare-all", "--die-with-parent", "--ro-bind"]).arg(&self.rootfs).arg("/");
        command.args(["--proc", "/proc", "--dev", "/dev", "--bind"]).arg(&self.dir).arg("/tmp");
        command.args(["bash", "-c", SMALL_FILES]).stdin(Stdio::null());
        let output = tokio::task::block_in_place(|| command.output()).context("running bwrap")?;
        ensure!(output.status.success(), "bwrap: {}", String::from_utf8_lossy(&output.stderr));
        timed_inside(&String::from_utf8_lossy(&output.stdout))
    }
}

/// What the work printed of its own duration.
fn timed_inside(text: &str) -> Result<Vec<Measured>> {
    let took = text.trim().parse().context("the work printed no time")?;
    Ok(vec![(NAMES[1], Duration::from_micros(took))])
}
