//! The census: resources of sandboxd on this machine, compared before and after the tests to find leaks, and removed by
//! `./dev clean`. A resource that disappears while it is read is not an error; a directory that cannot be read is.

mod disk;
mod foreign;
mod kernel;
mod processes;
pub mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Time for resources that disappear by themselves: dying processes, lazy unmounts.
const STRAGGLERS_MS: u64 = 5_000;
/// Interval between two checks.
const POLL_INTERVAL_MS: u64 = 100;

/// A resource: its kind, its unique name, and a description.
pub type Census = BTreeMap<(String, String), String>;

fn take() -> Result<Census> {
    let mut census = Census::new();
    let mut add = |kind: &str, found: Vec<(String, String)>| {
        census.extend(found.into_iter().map(|(name, words)| ((kind.to_owned(), name), words)));
    };
    add("process", processes::ours()?);
    add("namespace", processes::namespaces()?);
    add("cgroup", kernel::cgroups()?.into_iter().map(plain).collect());
    add("mount", kernel::mounts()?.into_iter().map(plain).collect());
    add("loop device", kernel::loop_devices()?);
    add("link", kernel::links()?.into_iter().map(plain).collect());
    add("nftables table", kernel::nft_tables()?.into_iter().map(plain).collect());
    add("file", disk::files()?.into_iter().map(plain).collect());
    Ok(census)
}

fn plain(name: String) -> (String, String) {
    (name, String::new())
}

/// Writes the names of all resources to `file`.
pub fn save(file: &Path) -> Result<ExitCode> {
    let census = take()?;
    let lines: String = census.keys().map(|(kind, name)| format!("{kind}\t{name}\n")).collect();
    std::fs::write(file, lines).with_context(|| format!("writing {}", file.display()))?;
    println!("census: {}", summary(&census));
    Ok(ExitCode::SUCCESS)
}

/// Fails with a list of the resources that are new since `file` was saved.
pub fn compare(file: &Path) -> Result<ExitCode> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let before = parse(&text);
    let deadline = Instant::now() + Duration::from_millis(STRAGGLERS_MS);
    let leaked = loop {
        let census = take()?;
        let leaked = new_since(&before, &census);
        if leaked.is_empty() {
            println!("census: nothing left behind; {}", summary(&census));
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() >= deadline {
            break leaked;
        }
        std::thread::sleep(Duration::from_millis(POLL_INTERVAL_MS));
    };
    println!("census: left behind ({STRAGGLERS_MS} ms after the end):");
    for line in &leaked {
        println!("  {line}");
    }
    println!("census: resources of other sandboxd processes that were started meanwhile are counted too");
    Ok(ExitCode::FAILURE)
}

fn parse(text: &str) -> BTreeSet<(String, String)> {
    text.lines()
        .filter_map(|l| l.split_once('\t'))
        .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
        .collect()
}

fn new_since(before: &BTreeSet<(String, String)>, now: &Census) -> Vec<String> {
    let new = now.iter().filter(|(key, _)| !before.contains(key));
    new.map(|((kind, name), words)| format!("{kind} {name} {words}").trim_end().to_owned()).collect()
}

fn summary(census: &Census) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (kind, _) in census.keys() {
        *counts.entry(kind).or_default() += 1;
    }
    counts.iter().map(|(kind, count)| format!("{kind} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
