//! `sandboxd config check`: reads the configuration as `serve` does, and prints what is wrong with it.
//!
//! Needs no daemon and no host that could run one, and changes nothing.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{Addresses, Global};
use crate::config::{self, Problems};
use crate::logs;
use crate::start_check::{StartCheck, warnings_of_variable};
use crate::stdout;

const INVALID: u8 = 1;
/// Printed last if the errors keep the other checks from running.
const MORE: &str = "correct these errors and check again: programs, files, certificates, images and accounts are checked then\n";

/// Applies the flags and variables that `serve` applies.
pub fn run(global: &Global, addresses: &Addresses) -> Result<ExitCode> {
    let file = config::file(global);
    let (errors, warnings, more) =
        match config::load(global).and_then(|config| config.with_addresses(addresses)) {
            Ok(config) => {
                let StartCheck { errors, warnings } = StartCheck::of(&config, file);
                (errors, warnings, "")
            }
            Err(problems) => (Err(problems), Ok(()), MORE),
        };
    let mut text = warnings.err().map(|warnings| lines(&warnings.with_label("warning"))).unwrap_or_default();
    let level = logs::level_of_variable();
    for warning in warnings_of_variable(level.as_ref().ok().and_then(Option::as_deref)) {
        text.push_str(&format!("warning: {warning}\n"));
    }
    let refused: Vec<Problems> = [errors.err(), level.err()].into_iter().flatten().collect();
    let code = if refused.is_empty() {
        text.push_str(&valid(file));
        text.push('\n');
        ExitCode::SUCCESS
    } else {
        text.extend(refused.iter().map(lines));
        text.push_str(more);
        ExitCode::from(INVALID)
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
