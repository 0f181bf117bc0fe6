//! Measures sandboxd and the subjects it is compared with. Run by `./dev bench`.
//!
//! Every subject of a bench takes its turn in every round, so noise of the machine hits all alike and their ratios count. A
//! bench that fails is reported and the next one runs; what it made is removed. Three hidden subcommands are the parts that
//! need a process of their own: one with a private mount namespace for `runc`, one to be killed for the recovery, and a peer
//! that answers hello over HTTPS.

mod arguments;
mod baselines;
mod benches;
mod bounds;
mod host;
mod http;
mod report;
mod samples;
mod service;
mod subject;
mod traces;
mod with_rig;

use std::process::ExitCode;

use anyhow::{Context as _, Result};

use arguments::{Arguments, Mode};
use baselines::docker::{Docker, Which};
use benches::Setup;

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    host::raise_open_files()?;
    match arguments::parse(&words)? {
        Mode::Help => {
            println!("{}", arguments::usage());
            Ok(ExitCode::SUCCESS)
        }
        Mode::RuncWorker { dir } => {
            baselines::runc::work(&dir)?;
            Ok(ExitCode::SUCCESS)
        }
        Mode::HelloServer { certificate, key } => {
            runtime()?.block_on(baselines::hello::serve(&certificate, &key))?;
            Ok(ExitCode::SUCCESS)
        }
        Mode::RecoveryChild { name, count } => {
            runtime()?.block_on(benches::recovery::child(name, count))?;
            Ok(ExitCode::SUCCESS)
        }
        Mode::Measure(arguments) => runtime()?.block_on(measure(arguments)),
    }
}

/// As the daemon's own.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting the runtime")
}

async fn measure(arguments: Arguments) -> Result<ExitCode> {
    let docker = docker(&arguments).await?;
    let setup = Setup { selected: arguments.names, scale: arguments.scale, docker };
    let (rows, failures) = benches::run_selected(&setup).await;
    let closed = match setup.docker {
        Some(docker) => docker.close().await,
        None => Ok(()),
    };
    println!("{}", report::table(&rows));
    println!("{}", bounds::table(&rows, &setup.selected));
    if let Some(file) = arguments.json {
        std::fs::write(&file, report::json_lines(&rows))
            .with_context(|| format!("writing {}", file.display()))?;
    }
    for failure in &failures {
        eprintln!("bench: {failure}");
    }
    closed.context("removing what Docker left")?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Only where a bench of this run has a use for it.
async fn docker(arguments: &Arguments) -> Result<Option<Docker>> {
    if !arguments.names.iter().any(|name| benches::USES_DOCKER.contains(name)) {
        return Ok(None);
    }
    let found = Docker::find(arguments.docker).await?;
    if found.is_none() {
        eprintln!("bench: Docker is absent here and not measured; --with-docker starts one of its own");
    } else if arguments.docker == Which::Own {
        eprintln!("bench: measuring against a Docker Engine of its own");
    }
    Ok(found)
}
