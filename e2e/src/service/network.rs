//! Removal of the network resources of a killed daemon. The daemon leaves them because its next start reuses them.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Removes link, route and firewall table. They may be missing, for example because the test's network namespace has ended.
pub fn remove(data: &Path) {
    let Some(state) = std::fs::read(data.join("network.json")).ok() else { return };
    let Some(state) = serde_json::from_slice::<Value>(&state).ok() else { return };
    let (Some(scope), Some(pool)) = (state["scope"].as_str(), state["pool"].as_str()) else {
        eprintln!("network.json has an unknown form: {state}");
        return;
    };
    run_ignoring_failure("nft", &["delete", "table", "inet", &format!("sandboxd_{scope}")]);
    run_ignoring_failure("ip", &["route", "del", "blackhole", pool]);
    run_ignoring_failure("ip", &["link", "del", &format!("sb{scope}-gw")]);
}

fn run_ignoring_failure(program: &str, arguments: &[&str]) {
    let run = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = run {
        eprintln!("{program} cannot be run: {error}");
    }
}
