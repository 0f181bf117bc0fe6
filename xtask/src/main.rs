//! Checks and maintenance tasks of the repository, run as `cargo xtask COMMAND` by `./dev`. Not shipped.

mod census;
mod metrics;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                    check the house rules and deny.toml; print one line per violation
  metrics                 print figures of the code per crate: lines, tests, documentation, names
    --check               fail with a list of the figures that exceed their bounds
    --save FILE           save the figures as JSON
    --compare FILE        print the change of each crate since FILE was saved
  census --save FILE      save a list of the resources of sandboxd on this machine
  census --compare FILE   fail with a list of resources that are new since FILE was saved
  sweep [--data]          remove resources that runs and tests left; --data also removes /var/lib/sandboxd";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<ExitCode> {
    match args {
        ["tidy"] => tidy::run(Path::new(".")),
        ["metrics", options @ ..] => metrics::run(Path::new("."), metrics::MetricsOptions::parse(options)?),
        ["census", "--save", file] => census::save(Path::new(file)),
        ["census", "--compare", file] => census::compare(Path::new(file)),
        ["sweep"] => census::sweep::run(census::sweep::Data::Keep),
        ["sweep", "--data"] => census::sweep::run(census::sweep::Data::Remove),
        [] | ["help" | "--help"] => {
            println!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("unknown arguments {other:?}\n{USAGE}"),
    }
}
