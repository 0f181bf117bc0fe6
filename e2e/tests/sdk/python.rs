//! The Python SDK: its tests, the examples of its README and for agent frameworks, and the coverage of the OpenAPI document.

use std::process::Command;

use e2e::code_image;

use crate::skip::skipped;
use crate::{library, passes};

#[tokio::test(flavor = "multi_thread")]
async fn the_tests_of_the_python_sdk_pass() {
    let directory = library("python");
    let python = directory.join("../../target/venv-sdk/bin/python");
    if !python.exists() {
        return skipped("python", "target/venv-sdk is missing; './dev test' installs it");
    }
    tokio::task::spawn_blocking(code_image::build).await.unwrap().unwrap();
    // starts: target/venv-sdk/bin/python
    let mut command = Command::new(python);
    command.current_dir(&directory).env("PYTHONDONTWRITEBYTECODE", "1").args([
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rs",
        "--strict-config",
    ]);
    let printed = passes(command).await;
    assert!(!printed.contains("skipped"), "tests were skipped:\n{printed}");
}
