//! `sandboxd`: the daemon and its tools for the operator.
//!
//! `main` reads the command line and the configuration and hands over to one file a command.

mod app;
mod cli;
mod commands;
mod config;
mod doctor;
mod progress;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("SANDBOXD_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sandboxd: {error:#}");
            ExitCode::from(commands::OUR_FAULT)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let config = config::load(&cli.global)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let code = match cli.verb {
        Verb::Doctor => Ok(doctor::run(&config)),
        Verb::Run(arguments) => runtime.block_on(commands::run::run(&config, arguments)),
        Verb::Image(verb) => runtime.block_on(commands::image::run(&config, verb)),
    };
    // A write to a reader that does not read may never end; all that matters is done.
    runtime.shutdown_background();
    code
}
