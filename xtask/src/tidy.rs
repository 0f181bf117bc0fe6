//! The checks of the house rules: `cargo xtask tidy`, part of `./dev lint`. Each file has one rule, a function from the sources
//! to [`Violation`]s. Only reading the repository can fail, which ends the run with an error.

mod attributes;
mod cycles;
mod deny;
mod dependencies;
mod documents;
mod graph;
mod headers;
mod layers;
pub mod lex;
mod manifests;
mod pipes;
mod programs;
mod removals;
pub mod scope;
pub mod sizes;
pub mod source;
mod text;
pub mod type_names;
mod unsafety;
mod unwraps;
mod words;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use source::{Rust, SourceFile};

/// Where a rule is broken and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub path: String,
    pub line: usize,
    pub rule: &'static str,
    pub remedy: String,
}

impl Violation {
    pub fn new(path: impl Into<String>, line: usize, rule: &'static str, remedy: impl Into<String>) -> Self {
        Self { path: path.into(), line, rule, remedy: remedy.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.remedy)
    }
}

/// Checks the repository at `root` and prints a line for each violation.
pub fn run(root: &Path) -> Result<ExitCode> {
    let sources = source::load(root)?;
    let rust: Vec<Rust<'_>> = sources.iter().filter_map(SourceFile::rust).collect();
    let mut found = Vec::new();
    for file in &rust {
        found.extend(sizes::check(file));
        found.extend(headers::check(file));
        found.extend(unwraps::check(file));
        found.extend(unsafety::check(file));
        found.extend(attributes::check(file));
    }
    for file in &sources {
        found.extend(text::check(file));
        found.extend(words::check(file));
        found.extend(sizes::check_script(file));
    }
    found.extend(sizes::check_all(&rust));
    found.extend(cycles::check(&rust));
    found.extend(type_names::check(&scope::scoped(&rust)));
    found.extend(documents::check(&sources));
    found.extend(programs::check(&sources, &rust));
    found.extend(pipes::check(&sources, &rust));
    found.extend(removals::check(&sources));
    found.extend(manifests::check(&sources)?);
    found.extend(dependencies::check(&sources)?);
    let graph = graph::Graph::load(root, &sources)?;
    found.extend(layers::check(&graph));
    found.extend(deny::check(&graph, &sources)?);
    found.sort();
    found.dedup();
    for violation in &found {
        println!("{violation}");
    }
    if found.is_empty() {
        println!("tidy: {} files, no violations", sources.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {} violations", found.len());
    Ok(ExitCode::FAILURE)
}

/// The text of a file by its path.
fn text_of<'a>(sources: &'a [SourceFile], path: &str) -> Option<&'a str> {
    sources.iter().find(|s| s.path == path).map(|s| s.text.as_str())
}
