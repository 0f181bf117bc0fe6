//! The recovery time after a kill of the daemon with 200 sandboxes, some of them paused.
//!
//! The daemon is another process of this program. It reports on its standard output and runs until it is killed or its standard
//! input ends.

use std::io::Read as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Rig, RigOptions};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use crate::report::{OURS, Row};
use crate::samples::Samples;
use crate::with_rig::with;

/// The hidden subcommand that runs the daemon.
pub const CHILD: &str = "__recovery-child";
const COUNT: usize = 200;
const PAUSED_EVERY: usize = 4;
const ROUNDS: usize = 5;
const CONCURRENT_CREATES: usize = 3;

pub async fn run() -> Result<Vec<Row>> {
    let mut samples = Samples::default();
    let mut problems = Vec::new();
    let first = Daemon::start(None).await.context("starting the first daemon")?;
    let name = first.name.clone();
    first.kill().await?;
    for _ in 0..ROUNDS {
        let next = Daemon::start(Some(&name)).await.context("starting a daemon that recovers")?;
        samples.push(next.took);
        if next.found != expected() {
            problems.push(format!("recovered {} instead of {}", next.found, expected()));
        }
        next.kill().await?;
    }
    let rig = Rig::reopen(name, RigOptions::default()).await?;
    with(rig, async |rig: &Rig| {
        let id = rig.driver.list().await?.into_iter().next().context("no sandbox is left")?;
        // The command resumes a paused sandbox.
        ensure!(rig.output(&id, "echo here").await? == "here\n", "a recovered sandbox does not answer");
        Ok(())
    })
    .await?;
    let mut row = Row::times("recovery", OURS, &samples).note(format!(
        "{COUNT} sandboxes, every {PAUSED_EVERY}th paused; from the opening of the store until the engine is ready"
    ));
    row.problems = problems;
    Ok(vec![row])
}

fn expected() -> String {
    let paused = COUNT / PAUSED_EVERY;
    format!("{}+{paused}+0", COUNT - paused)
}

/// A child process that runs an engine.
struct Daemon {
    process: Child,
    name: String,
    took: Duration,
    found: String,
}

impl Daemon {
    /// Starts a daemon with new sandboxes, or one that recovers those of a rig's name.
    async fn start(name: Option<&str>) -> Result<Self> {
        let mut process = tokio::process::Command::new(std::env::current_exe()?)
            .args([CHILD, &COUNT.to_string()])
            .args(name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().context("the daemon has no stdout")?;
        let line =
            BufReader::new(stdout).lines().next_line().await?.context("the daemon ended without output")?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, microseconds, found] = words[..] else { anyhow::bail!("the daemon printed {line:?}") };
        let took = Duration::from_micros(microseconds.parse()?);
        Ok(Self { process, name: name.to_owned(), took, found: found.to_owned() })
    }

    async fn kill(mut self) -> Result<()> {
        self.process.kill().await.context("killing a daemon")
    }
}

/// The main function of that process.
pub async fn child(name: Option<String>, count: usize) -> Result<()> {
    let begin = Instant::now();
    let rig = match name {
        Some(name) => Rig::reopen(name, RigOptions::default()).await?,
        None => Rig::new(RigOptions::default()).await?,
    };
    let took = begin.elapsed();
    if rig.engine.living() == 0 {
        let numbers = futures_util::stream::iter(0..count);
        numbers
            .map(|number| create(&rig, number))
            .buffer_unordered(CONCURRENT_CREATES)
            .try_collect::<()>()
            .await?;
    }
    let found = rig.recovered;
    println!("{} {} {}+{}+{}", rig.name, took.as_micros(), found.running, found.paused, found.stopped);
    // Ends at the latest with the bench.
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}

async fn create(rig: &Rig, number: usize) -> Result<()> {
    let id = rig.create().await?;
    if number.is_multiple_of(PAUSED_EVERY) {
        rig.engine.sandbox("test", &id).pause().await?;
    }
    Ok(())
}
