//! The programs of the README, as users copy them.

use std::process::Command;

use crate::skip::skipped;
use crate::{library, passes};

/// The first block of the README in a language.
fn program(language: &str) -> String {
    let text = std::fs::read_to_string(library("..").join("README.md")).unwrap();
    let (_, after) = text.split_once(&format!("```{language}\n")).unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_program_of_the_readme_works() {
    let directory = library("python");
    let python = directory.join("../../target/venv-sdk/bin/python");
    if !python.exists() {
        return skipped("readme", "target/venv-sdk is missing; './dev test' installs it");
    }
    // starts: target/venv-sdk/bin/python
    let mut command = Command::new(python);
    command
        .env("PYTHONPATH", directory.join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", &program("python")]);
    assert_eq!(passes(command).await, "hello\n\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_javascript_program_of_the_readme_works() {
    let directory = library("typescript");
    if !directory.join("dist/index.js").exists() {
        return skipped("readme", "sdk/typescript/dist is missing; './dev test' builds it");
    }
    // In the directory of the package, the package can be imported by its name.
    let examples = directory.join("test/examples");
    std::fs::create_dir_all(&examples).unwrap();
    let file = examples.join("readme.mjs");
    std::fs::write(&file, program("js")).unwrap();
    let mut command = Command::new("node");
    command.arg(file);
    assert_eq!(passes(command).await, "hello\n\n");
}
