//! The program `sbx`: sandboxes from a terminal.
//!
//! Exit code: that of the command that was run; 128 and the number of the signal that ended it; 130 after Ctrl-C; 125 for every
//! failure of ours, so that a script can tell them apart.

mod cli;
mod commands;
mod completion;
mod configuration;
mod context;
mod interrupt;
mod output;
mod probe;
mod progress;
mod pull;
mod style;
mod table;
mod tty;

use std::process::ExitCode;

use clap::Parser;

use cli::Cli;
use context::{Failure, OURS};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and the version are answers, not errors; what cannot be printed nobody reads.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(OURS) } else { ExitCode::SUCCESS };
        }
    };
    // One thread beside the main one, so that Ctrl-C is seen while output waits for its reader.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(commands::dispatch(cli));
            // A thread that reads a terminal never ends by itself.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(anyhow::anyhow!("starting: {error}")),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            // `sbx ls | head` is no failure.
            if output::is_closed(&error) {
                return ExitCode::SUCCESS;
            }
            Failure(&error).print();
            ExitCode::from(OURS)
        }
    }
}
