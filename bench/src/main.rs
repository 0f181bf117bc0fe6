//! Measures sandboxd and the subjects it is compared with. Run by `./dev bench`.
//!
//! The subjects of a bench run in alternation, so that noise of the machine affects all of them and the ratios are meaningful. A
//! bench that fails is reported, its resources are removed, and the next one runs. Hidden subcommands run parts in separate
//! processes: a worker with a private mount namespace for `runc`, a daemon that is killed for the recovery, and an HTTPS server as
//! a peer. `./dev bench --compare` calls two more.

mod arguments;
mod baselines;
mod benches;
mod bounds;
mod compare;
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
        Mode::RootFs => {
            println!("{}", e2e::rootfs()?.display());
            Ok(ExitCode::SUCCESS)
        }
        Mode::CompareBlocks { dir } => {
            println!("{}", compare::table(&dir)?);
            Ok(ExitCode::SUCCESS)
        }
        Mode::Measure(arguments) => runtime()?.block_on(measure(arguments)),
    }
}

/// A runtime like that of the daemon.
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
    closed.context("removing Docker's resources")?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Docker, if a selected bench uses it.
async fn docker(arguments: &Arguments) -> Result<Option<Docker>> {
    if !arguments.names.iter().any(|name| benches::USES_DOCKER.contains(name)) {
        return Ok(None);
    }
    let found = Docker::find(arguments.docker).await?;
    if found.is_none() {
        eprintln!("bench: Docker is not running and not measured; --with-docker starts one");
    } else if arguments.docker == Which::Own {
        eprintln!("bench: measuring against a Docker Engine started for this run");
    }
    Ok(found)
}
