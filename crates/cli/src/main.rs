//! The program `sbx`, which manages sandboxes from a terminal.
//!
//! Exit code: that of the command; 128 plus the number of the signal that killed it; 130 after Ctrl-C; 125 for failures of sbx itself,
//! so that scripts can tell them apart.

mod cli;
mod commands;
mod completion;
mod configuration;
mod context;
mod docker;
mod failure;
mod figures;
mod interrupt;
mod limit_wait;
mod output;
mod progress;
mod pull;
mod style;
mod table;
mod tty;
mod units;
mod user_units;

use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use failure::{PrintedError, SBX_FAILURE};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            let words: Vec<String> =
                std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            docker::explain(&mut error, &words);
            // Help and version are not errors. A closed output is ignored.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(SBX_FAILURE) } else { ExitCode::SUCCESS };
        }
    };
    // A worker thread handles Ctrl-C while the main thread is blocked on output.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(commands::dispatch(cli));
            // A thread that reads a terminal does not end by itself.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(anyhow::Error::new(error).context("starting")),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // `sbx ls | head` is not a failure.
            if output::is_closed(&error) {
                return ExitCode::SUCCESS;
            }
            PrintedError(&error).print();
            ExitCode::from(SBX_FAILURE)
        }
    }
}
