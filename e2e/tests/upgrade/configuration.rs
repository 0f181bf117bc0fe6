//! The current daemon accepts every key, flag and variable of the previous one.

use std::path::Path;
use std::process::{Command, Output};

use crate::Version;

fn sandboxd(version: Version, arguments: &[&str]) -> Output {
    // starts: sandboxd
    let mut command = Command::new(version.programs().join("sandboxd"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.args(arguments).output().unwrap()
}

fn reference(version: Version) -> String {
    let output = sandboxd(version, &["config", "reference"]);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The cells of a table's rows, without the marks of code.
fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Key"));
    rows.map(|line| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect())
}

/// A configuration with all keys of a reference, each with its default, in directories below `data`.
fn all_keys(reference: &str, data: &Path) -> String {
    let mut toml = String::new();
    for section in reference.split("\n## ").skip(1) {
        let heading = section.lines().next().unwrap();
        if heading.starts_with('[') {
            toml.push_str(&format!("\n{heading}\n"));
        }
        for row in rows(section) {
            let (key, default) = (row[0], row[2]);
            let value = match key {
                "data_dir" | "run_dir" => format!("{:?}", data.join(key)),
                // Keys that users choose.
                _ if key.starts_with('"') => continue,
                _ => default.to_owned(),
            };
            toml.push_str(&format!("{key} = {value}\n"));
        }
    }
    toml
}

#[test]
#[ignore = "run by ./dev upgrade, which builds the previous programs"]
fn every_key_of_the_previous_configuration_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.toml");
    let toml = all_keys(&reference(Version::Previous), dir.path());
    assert!(toml.contains("\n[capacity]\n") && toml.contains("\nmax_output_bytes = "), "{toml}");
    std::fs::write(&file, &toml).unwrap();
    let create = ["--config", file.to_str().unwrap(), "key", "create", "--account", "a", "--scopes", "read"];
    assert!(sandboxd(Version::Previous, &create).status.success(), "a list needs a store");
    for version in [Version::Previous, Version::Current] {
        let list = |text: &str| {
            std::fs::write(&file, text).unwrap();
            sandboxd(version, &["--config", file.to_str().unwrap(), "key", "list"])
        };
        let output = list(&toml);
        assert!(output.status.success(), "{version:?}: {}", String::from_utf8_lossy(&output.stderr));
        // The command reads the whole file.
        let output = list(&format!("{toml}\n[nonsense]\nkey = 1\n"));
        assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"), "{version:?}: {output:?}");
    }
}

#[test]
#[ignore = "run by ./dev upgrade, which builds the previous programs"]
fn every_previous_flag_and_variable_remains() {
    let (before, now) = (reference(Version::Previous), reference(Version::Current));
    let flags = |reference: &str| -> Vec<(String, String)> {
        let (head, _) = reference.split_once("\n## ").unwrap();
        rows(head).filter(|row| row[0] != "Flag").map(|row| (row[0].to_owned(), row[1].to_owned())).collect()
    };
    let now = flags(&now);
    let before = flags(&before);
    assert!(before.len() > 5, "{before:?}");
    for flag in before {
        assert!(now.contains(&flag), "{flag:?} is missing in {now:?}");
    }
}
