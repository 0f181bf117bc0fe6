//! Cargo.toml of each crate: versions and lints come from the workspace. Two crates can be published and have the metadata that
//! a registry requires; the others are marked as private.

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::Violation;
use super::source::SourceFile;

/// Crates for users: the client library and the crates that it needs. Their names are global.
const PUBLISHED: [&str; 2] = ["sandboxd-api", "sandboxd-client"];
/// The metadata of a published crate.
const METADATA: [&str; 6] = ["description", "license", "readme", "keywords", "categories", "rust-version"];

/// Finds settings of manifests that differ from the workspace.
pub fn check(sources: &[SourceFile]) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    for file in sources.iter().filter(|s| s.path.ends_with("/Cargo.toml")) {
        let manifest: Table = file.text.parse().with_context(|| file.path.clone())?;
        // A separate workspace, such as fuzz/.
        if manifest.contains_key("workspace") {
            continue;
        }
        let own = manifest.get("package").and_then(|p| p.get("name")).and_then(Value::as_str);
        for (name, value) in dependencies(&manifest) {
            // The tests of a crate may depend on the crate itself by path to enable a feature.
            if own != Some(name) && !is_from_workspace(value) {
                let remedy = format!(
                    "{name}: put the version into [workspace.dependencies] and write {name}.workspace = true"
                );
                found.push(Violation::new(
                    &file.path,
                    line_of(&file.text, name),
                    "workspace-dependency",
                    remedy,
                ));
            }
        }
        for remedy in publication(&manifest) {
            found.push(Violation::new(&file.path, line_of(&file.text, "publish"), "publish", remedy));
        }
        if !manifest.get("lints").is_some_and(is_from_workspace) {
            found.push(Violation::new(&file.path, 1, "workspace-lints", "add [lints] workspace = true"));
        }
    }
    Ok(found)
}

/// The remedies for errors in a manifest of a published or private crate.
fn publication(manifest: &Table) -> Vec<String> {
    let Some(package) = manifest.get("package").and_then(Value::as_table) else { return Vec::new() };
    let name = package.get("name").and_then(Value::as_str).unwrap_or_default();
    let publish = package.get("publish");
    if !PUBLISHED.contains(&name) {
        let is_private =
            publish.is_some_and(|value| value.as_bool() == Some(false) || is_from_workspace(value));
        let remedy =
            "write publish.workspace = true, or add the crate to PUBLISHED in xtask/src/tidy/manifests.rs";
        return if is_private { Vec::new() } else { vec![remedy.to_owned()] };
    }
    let mut remedies = Vec::new();
    if publish.and_then(Value::as_bool) != Some(true) {
        remedies.push("write publish = true: this crate is for users".to_owned());
    }
    let missing = METADATA.iter().filter(|key| !package.contains_key(**key));
    remedies.extend(missing.map(|key| format!("a published crate needs {key}")));
    remedies
}

/// Every dependency a manifest declares, of every kind and target.
pub fn dependencies(manifest: &Table) -> Vec<(&str, &Value)> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = std::iter::once(manifest).chain(targets.filter_map(Value::as_table));
    let kinds = tables.flat_map(|table| KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()));
    kinds.flat_map(|kind| kind.iter().map(|(name, value)| (name.as_str(), value))).collect()
}

/// The line on which a manifest names a dependency.
pub fn line_of(text: &str, name: &str) -> usize {
    let names = |line: &str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['.', ' ', '=']));
    text.lines().position(names).map_or(1, |at| at + 1)
}

fn is_from_workspace(value: &Value) -> bool {
    value.get("workspace").and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, &'static str)> {
        let text = format!("{text}\n[lints]\nworkspace = true\n");
        let found = check(&[SourceFile { path: "crates/x/Cargo.toml".into(), text }]).unwrap();
        found.into_iter().map(|v| (v.line, v.rule)).collect()
    }

    #[test]
    fn a_version_outside_the_workspace_is_found() {
        assert_eq!(found("[dependencies]\nserde = \"1\""), [(2, "workspace-dependency")]);
        assert_eq!(found("[dev-dependencies]\nx = { path = \"../x\" }"), [(2, "workspace-dependency")]);
        assert_eq!(found("[target.'cfg(unix)'.dependencies]\nx = \"1\""), [(2, "workspace-dependency")]);
    }

    #[test]
    fn workspace_dependencies_pass() {
        assert!(
            found("[dependencies]\nserde.workspace = true\nx = { workspace = true, features = [\"a\"] }")
                .is_empty()
        );
        assert!(
            found(
                "[package]\nname = \"x\"\npublish.workspace = true\n[dev-dependencies]\nx = { path = \".\" }"
            )
            .is_empty()
        );
        assert!(found("[workspace]\n[dependencies]\nserde = \"1\"").is_empty());
    }

    #[test]
    fn a_crate_is_private_or_complete() {
        let package = |text: &str| found(&format!("[package]\n{text}"));
        assert_eq!(package("name = \"x\""), [(1, "publish")]);
        assert_eq!(package("name = \"x\"\npublish = true"), [(3, "publish")]);
        assert!(package("name = \"x\"\npublish.workspace = true").is_empty());
        assert_eq!(package("name = \"sandboxd-client\"\npublish.workspace = true").len(), 1 + METADATA.len());
        let complete: String = METADATA.iter().map(|key| format!("{key} = \"x\"\n")).collect();
        assert!(package(&format!("name = \"sandboxd-api\"\npublish = true\n{complete}")).is_empty());
    }

    #[test]
    fn missing_lints_are_found() {
        let text = "[package]\npublish.workspace = true\n".to_owned();
        let source = SourceFile { path: "crates/x/Cargo.toml".into(), text };
        assert_eq!(check(&[source]).unwrap()[0].rule, "workspace-lints");
    }
}
