//! `sandboxd config check`: reads the configuration as `serve` does, and prints what is wrong with it.
//!
//! Needs no daemon and no host that could run one, and changes nothing.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Global;
use crate::config::{self, Config, Problem, Problems};

const INVALID: u8 = 1;

pub fn run(global: &Global) -> Result<ExitCode> {
    let file = config::file(global);
    match config::load(global).and_then(|config| check_files(&config, file)) {
        Ok(()) => {
            println!("{}", valid(file));
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            problems.lines().for_each(|line| println!("{line}"));
            Ok(ExitCode::from(INVALID))
        }
    }
}

fn valid(file: Option<&Path>) -> String {
    match file {
        Some(file) => format!("{} is valid", file.display()),
        None => "there is no configuration file; the defaults apply".to_owned(),
    }
}

/// Opens the files that the service would read at its start.
fn check_files(config: &Config, file: Option<&Path>) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for (key, path) in config.named_files() {
        if let Err(error) = File::open(path) {
            let message = format!("{key} is '{}', which cannot be read: {error}", path.display());
            problems.push(Problem { line: None, message });
        }
    }
    Problems::check(problems).map_err(|problems| match file {
        Some(file) => problems.in_file(file),
        None => problems,
    })
}
