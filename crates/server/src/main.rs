//! `sandboxd`: the daemon and its tools for the operator.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match sandboxd::run(sandboxd::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sandboxd: {}", sandboxd::chain_text(&*error));
            ExitCode::from(sandboxd::EXIT_CODE_SANDBOXD_FAILED)
        }
    }
}
