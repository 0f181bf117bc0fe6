//! `sandboxd config check`: reads the configuration as `serve` does, and prints what is wrong with it.
//!
//! Needs no daemon and no host that could run one, and changes nothing.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Global;
use crate::config::{self, Problems};
use crate::start_check::StartCheck;
use crate::stdout;

const INVALID: u8 = 1;

pub fn run(global: &Global) -> Result<ExitCode> {
    let file = config::file(global);
    let (errors, warnings) = match config::load(global) {
        Ok(config) => {
            let StartCheck { errors, warnings } = StartCheck::of(&config, file);
            (errors, warnings)
        }
        Err(problems) => (Err(problems), Ok(())),
    };
    let mut text = warnings.err().map(|warnings| lines(&warnings.with_label("warning"))).unwrap_or_default();
    let code = match errors {
        Ok(()) => {
            text.push_str(&valid(file));
            text.push('\n');
            ExitCode::SUCCESS
        }
        Err(problems) => {
            text.push_str(&lines(&problems));
            ExitCode::from(INVALID)
        }
    };
    stdout::print(&text)?;
    Ok(code)
}

fn lines(problems: &Problems) -> String {
    problems.lines().map(|line| line + "\n").collect()
}

fn valid(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!("{} is valid", file.display()),
        None => "there is no configuration file; the defaults apply".to_owned(),
    }
}
