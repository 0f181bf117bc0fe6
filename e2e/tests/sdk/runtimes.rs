//! The TypeScript SDK on other runtimes than Node.js: Bun, Deno, and a page in Chromium.

use std::path::PathBuf;
use std::process::Command;

use crate::{library, options, passes, passes_with};

fn program(name: &str) -> PathBuf {
    library("typescript").join("../../target/runtimes/node_modules/.bin").join(name)
}

/// A command in the directory of the SDK.
fn command(program: impl Into<PathBuf>) -> Command {
    // starts: target/runtimes/node_modules/.bin/bun, target/runtimes/node_modules/.bin/deno, node
    let mut command = Command::new(program.into());
    command.current_dir(library("typescript"));
    command
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by ./dev runtimes"]
async fn the_typescript_sdk_works_on_bun() {
    let mut command = command(program("bun"));
    command.args(["test/runtimes/program.mjs", "test", "websockets"]);
    assert!(passes(command).await.contains("directories terminal terminate"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by ./dev runtimes"]
async fn the_typescript_sdk_works_on_deno() {
    let mut command = command(program("deno"));
    command.args(["run", "--allow-net", "--allow-env", "--allow-read", "--allow-write"]).args([
        "test/runtimes/program.mjs",
        "test",
        "websockets",
    ]);
    assert!(passes(command).await.contains("directories terminal terminate"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by ./dev runtimes"]
async fn the_typescript_sdk_works_in_a_page() {
    let options = options().with("http", "allowed_origins", "[\"*\"]");
    // It starts: chromium
    let mut command = command("node");
    command.arg("test/runtimes/browser.mjs");
    assert!(passes_with(&options, command).await.contains("follow terminal terminate"));
}
