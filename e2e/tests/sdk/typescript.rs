//! The TypeScript SDK: its tests, the examples of its README and the coverage of the OpenAPI document, on Node.js.

use std::process::Command;

use crate::skip::skipped;
use crate::{library, passes};

/// The oldest version of Node.js that the SDK supports.
const OLDEST_NODE: u32 = 20;

fn node_version() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tests_of_the_typescript_sdk_pass() {
    let directory = library("typescript");
    let runner = directory.join("node_modules/vitest/vitest.mjs");
    if !runner.exists() {
        return skipped(
            "typescript",
            "the packages of sdk/typescript are missing; './dev test' installs them",
        );
    }
    if node_version().is_none_or(|version| version < OLDEST_NODE) {
        return skipped("typescript", "Node.js is older than 20");
    }
    let mut command = Command::new("node");
    command.current_dir(&directory).arg(runner).args(["run", "--reporter=verbose"]);
    passes(command).await;
}
