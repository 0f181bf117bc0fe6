//! The dependency graph according to `cargo metadata`, for the targets in deny.toml. Loaded once, for `layers` and `deny`. Fails if
//! cargo does: a stale Cargo.lock, or packages that are missing and cannot be fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::source::SourceFile;
use super::text_of;

/// One version of one package.
#[derive(Debug, Clone, Default)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub licence: Option<String>,
    /// Its source; `None` for packages of this repository.
    pub source: Option<String>,
    /// Path of its manifest; relative to the root for packages of this repository.
    pub manifest: String,
    /// The dependencies that its manifest declares.
    pub declared: Vec<Declared>,
    /// Names of the packages that depend on it directly.
    pub parents: BTreeSet<String>,
}

/// A dependency that a manifest declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    pub name: String,
    pub tests_only: bool,
}

/// All packages that the workspace is built from.
#[derive(Debug, Default)]
pub struct Graph {
    pub packages: Vec<Package>,
}

impl Graph {
    pub fn load(root: &Path, sources: &[SourceFile]) -> Result<Self> {
        let config: toml::Table = text_of(sources, "deny.toml").context("deny.toml is missing")?.parse()?;
        let targets = config.get("graph").and_then(|g| g.get("targets")).and_then(toml::Value::as_array);
        let targets = targets.context("deny.toml: [graph] targets must list the targets of the build")?;
        let mut packages = BTreeMap::new();
        let root = root.canonicalize()?;
        for target in targets {
            let target = target.as_str().context("deny.toml: [graph] targets must be a list of strings")?;
            add(&mut packages, &root, &metadata(&root, target)?)?;
        }
        Ok(Self { packages: packages.into_values().collect() })
    }

    /// The packages of this repository.
    pub fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|p| p.source.is_none())
    }
}

fn metadata(root: &Path, target: &str) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // starts: cargo
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", target])
        .current_dir(root)
        .output()
        .context("could not start cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata --locked: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn add(packages: &mut BTreeMap<String, Package>, root: &Path, metadata: &Value) -> Result<()> {
    for value in list(&metadata["packages"]) {
        let declared = list(&value["dependencies"])
            .map(|d| Declared { name: text(&d["name"]), tests_only: d["kind"] == "dev" });
        let manifest = text(&value["manifest_path"]);
        let inside = Path::new(&manifest).strip_prefix(root).map(|p| p.display().to_string());
        let package = Package {
            name: text(&value["name"]),
            version: text(&value["version"]),
            licence: value["license"].as_str().map(str::to_owned),
            source: value["source"].as_str().map(str::to_owned),
            manifest: inside.unwrap_or(manifest),
            declared: declared.collect(),
            parents: BTreeSet::new(),
        };
        packages.entry(text(&value["id"])).or_insert(package);
    }
    for node in list(&metadata["resolve"]["nodes"]) {
        let parent =
            packages.get(&text(&node["id"])).context("cargo metadata names an unknown package")?.name.clone();
        for child in list(&node["deps"]) {
            let id = text(&child["pkg"]);
            let child = packages
                .get_mut(&id)
                .ok_or_else(|| anyhow!("cargo metadata names an unknown package {id}"))?;
            child.parents.insert(parent.clone());
        }
    }
    Ok(())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_their_parents_are_read() {
        let metadata = serde_json::json!({
            "packages": [
                { "id": "a", "name": "api", "version": "0.1.0", "source": null, "manifest_path": "/r/crates/api/Cargo.toml",
                  "license": "Apache-2.0", "dependencies": [{ "name": "serde", "kind": null }, { "name": "tempfile", "kind": "dev" }] },
                { "id": "s", "name": "serde", "version": "1.0.0", "source": "registry", "manifest_path": "/c/serde/Cargo.toml",
                  "license": "MIT", "dependencies": [] },
            ],
            "resolve": { "nodes": [{ "id": "a", "deps": [{ "pkg": "s" }] }, { "id": "s", "deps": [] }] },
        });
        let mut packages = BTreeMap::new();
        add(&mut packages, Path::new("/r"), &metadata).unwrap();
        assert_eq!(packages["a"].manifest, "crates/api/Cargo.toml");
        assert_eq!(packages["a"].declared[1], Declared { name: "tempfile".into(), tests_only: true });
        assert!(packages["s"].parents.contains("api"));
    }
}
