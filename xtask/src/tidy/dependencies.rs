//! docs/dependencies.md has a reason for each direct dependency, and lists no others.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::source::SourceFile;
use super::{Violation, manifests, text_of};

const DOCUMENT: &str = "docs/dependencies.md";

/// Finds dependencies without a reason in the document, and reasons without a dependency.
pub fn check(sources: &[SourceFile]) -> Result<Vec<Violation>> {
    let mut direct = BTreeMap::new();
    let mut used = BTreeSet::new();
    for file in sources.iter().filter(|s| s.path == "Cargo.toml" || s.path.ends_with("/Cargo.toml")) {
        let manifest: Table = file.text.parse().with_context(|| file.path.clone())?;
        for (name, value) in shared(&manifest) {
            direct.insert(
                (name.to_owned(), is_ours(value)),
                (file.path.as_str(), manifests::line_of(&file.text, name)),
            );
        }
        for (name, value) in manifests::dependencies(&manifest) {
            used.insert(name.to_owned());
            if manifest.contains_key("workspace") && !is_ours(value) {
                let position = (file.path.as_str(), manifests::line_of(&file.text, name));
                direct.entry((name.to_owned(), false)).or_insert(position);
            }
        }
    }
    let documented = documented(text_of(sources, DOCUMENT).unwrap_or_default());
    let mut found = Vec::new();
    for ((name, ours), (path, line)) in &direct {
        if !used.contains(name) {
            found.push(Violation::new(
                *path,
                *line,
                "unused-dependency",
                format!("no crate uses {name}; remove the line"),
            ));
        } else if !ours && !documented.iter().any(|(d, _, reason)| d == name && *reason) {
            let remedy = format!("add a line \"- `{name}`: REASON\" to {DOCUMENT}");
            found.push(Violation::new(*path, *line, "dependency-reason", remedy));
        }
    }
    for (name, line, _) in &documented {
        if !direct.contains_key(&(name.clone(), false)) {
            let remedy = format!("{name} is not a direct dependency (any more); remove the line");
            found.push(Violation::new(DOCUMENT, *line, "dependency-reason", remedy));
        }
    }
    Ok(found)
}

fn shared(manifest: &Table) -> impl Iterator<Item = (&str, &Value)> {
    let table = manifest.get("workspace").and_then(|w| w.get("dependencies")).and_then(Value::as_table);
    table.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

fn is_ours(value: &Value) -> bool {
    value.get("path").is_some()
}

/// Name, line, and whether a reason follows, of each line "- `name`: reason".
fn documented(text: &str) -> Vec<(String, usize, bool)> {
    let entries = text.lines().enumerate().filter_map(|(at, line)| {
        let (name, reason) = line.strip_prefix("- `")?.split_once('`')?;
        let reason = reason.strip_prefix(':').is_some_and(|r| r.split_whitespace().count() >= 3);
        Some((name.to_owned(), at + 1, reason))
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace.dependencies]\nours = { path = \"x\" }\nserde = \"1\"\n";
    const MEMBER: &str = "[dependencies]\nours.workspace = true\nserde.workspace = true\n";

    fn found(root: &str, member: &str, document: &str) -> Vec<String> {
        let source = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let sources =
            [source("Cargo.toml", root), source("crates/x/Cargo.toml", member), source(DOCUMENT, document)];
        check(&sources).unwrap().into_iter().map(|v| format!("{}:{}: {}", v.path, v.line, v.rule)).collect()
    }

    #[test]
    fn a_documented_dependency_passes() {
        assert_eq!(found(ROOT, MEMBER, "- `serde`: reads and writes JSON\n"), [""; 0]);
    }

    #[test]
    fn a_missing_or_empty_reason_is_found() {
        assert_eq!(found(ROOT, MEMBER, ""), ["Cargo.toml:3: dependency-reason"]);
        assert_eq!(found(ROOT, MEMBER, "- `serde`:\n"), ["Cargo.toml:3: dependency-reason"]);
        let fuzz =
            format!("{ROOT}[workspace]\n[dependencies]\nfuzzer = \"1\"\n").replace("[workspace]\n", "");
        assert!(
            found(&fuzz, MEMBER, "- `serde`: reads and writes JSON\n")
                .iter()
                .any(|v| v.ends_with("dependency-reason"))
        );
    }

    #[test]
    fn a_stale_line_is_found() {
        let document = "- `serde`: reads and writes JSON\n- `gone`: was of great use\n";
        assert_eq!(found(ROOT, MEMBER, document), ["docs/dependencies.md:2: dependency-reason"]);
    }

    #[test]
    fn an_unused_dependency_is_found() {
        let member = "[dependencies]\nserde.workspace = true\n";
        assert_eq!(
            found(ROOT, member, "- `serde`: reads and writes JSON\n"),
            ["Cargo.toml:2: unused-dependency"]
        );
    }
}
