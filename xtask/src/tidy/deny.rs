//! Checks deny.toml without cargo-deny, which takes minutes to build: one version of each package, licences, bans and sources. The
//! format is that of cargo-deny, which checks the same file and also the security advisories.

mod licences;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::graph::{Graph, Package};
use super::source::SourceFile;
use super::{Violation, text_of};

const FILE: &str = "deny.toml";

/// Finds dependencies that `deny.toml` does not permit. Fails if that file is invalid.
pub fn check(graph: &Graph, sources: &[SourceFile]) -> Result<Vec<Violation>> {
    let text = text_of(sources, FILE).context("there is no deny.toml")?;
    let config: Table = text.parse().context(FILE)?;
    let mut found = versions(graph, text, &entries(&config, "bans", "skip")?);
    found.extend(bans(graph, text, &entries(&config, "bans", "deny")?));
    found.extend(licences::check(graph, &config, &entries(&config, "licenses", "exceptions")?));
    found.extend(origins(graph));
    Ok(found)
}

/// An entry of a list in deny.toml: a package, `name` or `name@version`, with its settings.
#[derive(Debug, Default)]
struct DenyEntry {
    package: String,
    reason: String,
    /// Packages that may depend on a banned package.
    wrappers: Vec<String>,
    /// Licences allowed for this package only.
    allow: Vec<String>,
}

fn entries(config: &Table, table: &str, key: &str) -> Result<Vec<DenyEntry>> {
    let list = config.get(table).and_then(|t| t.get(key)).and_then(Value::as_array);
    let entry = |value: &Value| {
        let package = value.get("crate").and_then(Value::as_str);
        let package =
            package.with_context(|| format!("{FILE}: {table}.{key}: each entry needs crate = \"NAME\""))?;
        Ok(DenyEntry {
            package: package.to_owned(),
            reason: value.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned(),
            wrappers: strings(value.get("wrappers")),
            allow: strings(value.get("allow")),
        })
    };
    list.into_iter().flatten().map(entry).collect()
}

fn strings(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

impl DenyEntry {
    fn is_for(&self, package: &Package) -> bool {
        match self.package.split_once('@') {
            Some((name, version)) => name == package.name && version == package.version,
            None => self.package == package.name,
        }
    }

    fn violation(&self, text: &str, rule: &'static str, remedy: String) -> Violation {
        let line =
            text.lines().position(|l| l.contains(&format!("\"{}\"", self.package))).map_or(1, |at| at + 1);
        Violation::new(FILE, line, rule, remedy)
    }
}

/// One version of each package, except those in `skip`, which need a reason and must still be duplicated.
fn versions(graph: &Graph, text: &str, skip: &[DenyEntry]) -> Vec<Violation> {
    let mut by_name: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in &graph.packages {
        by_name.entry(&package.name).or_default().push(package);
    }
    let mut found = Vec::new();
    for (name, packages) in &by_name {
        let counted: Vec<_> = packages.iter().filter(|p| !skip.iter().any(|s| s.is_for(p))).collect();
        if counted.len() > 1 {
            let version = |p: &&&Package| format!("{} (by {})", p.version, joined(&p.parents));
            let all: Vec<_> = counted.iter().map(version).collect();
            let remedy = format!(
                "{name} has several versions: {}; unify them, or skip one in {FILE} with a reason",
                all.join(", ")
            );
            found.push(Violation::new("Cargo.lock", 1, "one-version", remedy));
        }
    }
    for entry in skip {
        let name = entry.package.split('@').next().unwrap_or_default();
        let duplicated = by_name.get(name).is_some_and(|p| p.len() > 1 && p.iter().any(|p| entry.is_for(p)));
        if !duplicated {
            found.push(entry.violation(
                text,
                "one-version",
                format!("{} is not duplicated (any more); remove the entry", entry.package),
            ));
        } else if entry.reason.is_empty() {
            found.push(entry.violation(
                text,
                "one-version",
                format!("{}: add reason = \"…\"", entry.package),
            ));
        }
    }
    found
}

/// Banned packages, and packages that only certain packages may use.
fn bans(graph: &Graph, text: &str, deny: &[DenyEntry]) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in deny {
        if entry.reason.is_empty() {
            found.push(entry.violation(text, "ban", format!("{}: add reason = \"…\"", entry.package)));
        }
        for package in graph.packages.iter().filter(|p| entry.is_for(p)) {
            let unauthorized: BTreeSet<String> =
                package.parents.iter().filter(|p| !entry.wrappers.contains(p)).cloned().collect();
            if !unauthorized.is_empty() {
                let remedy =
                    format!("{} may not use {}: {}", joined(&unauthorized), package.name, entry.reason);
                found.push(Violation::new("Cargo.lock", 1, "ban", remedy));
            }
        }
    }
    found
}

/// Packages come from the registry that cargo uses by default, or from this repository.
fn origins(graph: &Graph) -> Vec<Violation> {
    let foreign =
        graph.packages.iter().filter(|p| p.source.as_ref().is_some_and(|s| !s.contains("crates.io-index")));
    let violation = |p: &Package| {
        let remedy = format!(
            "{} comes from {}; use a published version",
            p.name,
            p.source.as_deref().unwrap_or_default()
        );
        Violation::new("Cargo.lock", 1, "source", remedy)
    };
    foreign.map(violation).collect()
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
