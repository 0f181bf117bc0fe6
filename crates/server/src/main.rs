//! `sandboxd`: the daemon and its tools for the operator.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match sandboxd::run(sandboxd::Cli::of_process()) {
        Ok(code) => code,
        Err(error) => {
            // Without a reader the exit code has to do.
            let _ = writeln!(std::io::stderr(), "sandboxd: {}", sandboxd::chain_text(&*error));
            ExitCode::from(sandboxd::EXIT_CODE_SANDBOXD_FAILED)
        }
    }
}
