//! The figures of the code: `cargo xtask metrics`. Per crate and in total: lines of code and of tests, undocumented public items,
//! files at the top of `src`, functions with a `bool` parameter; for all crates: lengths of files, long functions, type names with
//! many definitions. `--check` fails if a bound is exceeded; the command is no part of `./dev lint`. It reads the sources with the
//! scanner of `tidy` and fails only if they, or a saved file, cannot be read.
//!
//! What is counted:
//! - Code: `crates/` and `xtask/`. Everything in `e2e/` and `fuzz/` is tests. `bench/` is shown, but is in no total.
//! - Tests: what `tidy` leaves out (`#[test]`, `#[cfg(test)]`, `tests.rs`, `tests/`), and modules for tests in a file of their own or
//!   behind the features `testing` and `fuzzing`.
//! - Lines of code and of tests: without blank lines and comments.
//! - The length of a file: its lines without tests, blank lines and comments included, as `tidy` has it. Files in `crates/` only,
//!   without files that are tests as a whole.
//! - Public items: `pub` functions, methods, structs, enums, unions, traits, type aliases, constants, statics and modules. The
//!   compiler's `missing_docs` counts fewer, as it skips what another crate cannot reach, and also fields, variants and items of traits.
//!   Fields have a column of their own, without a bound. A module is documented by the `//!` of its file.
//! - Functions with a `bool` parameter: `bool`, `&bool` and `&mut bool`. Not `Option<bool>`, and not fields.
//! - Type names: structs, enums, unions, traits and type aliases; associated types are left out.

mod bounds;
mod figures;
mod items;
mod report;
mod saved;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::tidy::source::{self, Rust, SourceFile};
use figures::Figures;

/// What `cargo xtask metrics` does besides printing the figures.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetricsOptions<'a> {
    bounds: BoundsUse,
    save: Option<&'a str>,
    compare: Option<&'a str>,
}

/// What an exceeded bound does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum BoundsUse {
    #[default]
    Ignore,
    Enforce,
}

impl<'a> MetricsOptions<'a> {
    /// Reads the arguments after `metrics`, in any order.
    pub fn parse(mut args: &[&'a str]) -> Result<Self> {
        let mut options = Self::default();
        loop {
            args = match args {
                [] => return Ok(options),
                ["--check", rest @ ..] => {
                    options.bounds = BoundsUse::Enforce;
                    rest
                }
                ["--save", file, rest @ ..] => {
                    options.save = Some(*file);
                    rest
                }
                ["--compare", file, rest @ ..] => {
                    options.compare = Some(*file);
                    rest
                }
                other => bail!("unknown arguments of metrics: {other:?}"),
            };
        }
    }
}

/// Prints the figures of the repository at `root`. Compares before it saves, so that both options may name one file.
pub fn run(root: &Path, options: MetricsOptions<'_>) -> Result<ExitCode> {
    let sources = source::load(root)?;
    let rust: Vec<Rust<'_>> = sources.iter().filter_map(SourceFile::rust).collect();
    let figures = Figures::of(&rust);
    println!("{}", report::table(&figures));
    if let Some(file) = options.compare {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
        let before: serde_json::Value = serde_json::from_str(&text).with_context(|| file.to_owned())?;
        let changes = saved::changes(&before, &figures).with_context(|| file.to_owned())?;
        println!("\nchange since {file}:\n{changes}");
    }
    if let Some(file) = options.save {
        let text = format!("{:#}\n", saved::to_json(&figures));
        std::fs::write(file, text).with_context(|| format!("writing {file}"))?;
    }
    if options.bounds == BoundsUse::Ignore {
        return Ok(ExitCode::SUCCESS);
    }
    let exceeded = bounds::exceeded(&figures);
    println!("\nmetrics: {} bounds exceeded", exceeded.len());
    for line in &exceeded {
        println!("  {line}");
    }
    Ok(if exceeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order() {
        assert_eq!(MetricsOptions::parse(&[]).unwrap(), MetricsOptions::default());
        let options = MetricsOptions::parse(&["--compare", "a", "--check", "--save", "b"]).unwrap();
        let expected = MetricsOptions { bounds: BoundsUse::Enforce, save: Some("b"), compare: Some("a") };
        assert_eq!(options, expected);
    }

    #[test]
    fn an_unknown_option_or_a_missing_file_is_refused() {
        assert!(MetricsOptions::parse(&["--checks"]).is_err());
        assert!(MetricsOptions::parse(&["--check", "--save"]).is_err());
    }
}
