//! `sandboxd config check`: reads the configuration as `serve` does, and prints what is wrong with it.
//!
//! Needs no daemon and no host that could run one, and changes nothing.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::app::catalogue;
use crate::cli::Global;
use crate::config::{self, Config, Problem, Problems, Tls};
use crate::stdout;

const INVALID: u8 = 1;

pub fn run(global: &Global) -> Result<ExitCode> {
    let file = config::file(global);
    match config::load(global).and_then(|config| check_files(&config, file)) {
        Ok(()) => {
            stdout::print(&format!("{}\n", valid(file)))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(problems) => {
            stdout::print(&problems.lines().map(|line| line + "\n").collect::<String>())?;
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

/// Reads what the service would read at its start: certificate and key, and the sources of images.
fn check_files(config: &Config, file: Option<&Path>) -> Result<(), Problems> {
    let mut problems = Vec::new();
    for (key, path) in config.named_files() {
        if let Err(error) = File::open(path) {
            let message = format!("{key} is '{}', which cannot be read: {error}", path.display());
            problems.push(Problem { line: None, message });
        }
    }
    if problems.is_empty() && config.http.tls == Tls::Files {
        let (certificate, key) = (config.http.tls_cert.clone(), config.http.tls_key.clone());
        if let Err(error) = listen::Tls::load(listen::TlsConfig::Own { certificate, key }) {
            problems.push(Problem { line: None, message: format!("http.tls_cert: {error}") });
        }
    }
    if let Err(error) = catalogue(config) {
        problems.push(Problem { line: None, message: format!("{error:#}") });
    }
    Problems::check(problems).map_err(|problems| match file {
        Some(file) => config::locate(problems, file),
        None => problems,
    })
}
