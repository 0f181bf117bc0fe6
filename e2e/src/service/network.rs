//! What a daemon that was killed leaves of its network, on purpose: it is to go on from there.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Removes it. What is not there, in a namespace that is gone with its test say, is nothing to be removed.
pub fn remove(data: &Path) {
    let Some(remembered) = std::fs::read(data.join("network.json")).ok() else { return };
    let Some(remembered) = serde_json::from_slice::<Value>(&remembered).ok() else { return };
    let (Some(scope), Some(pool)) = (remembered["scope"].as_str(), remembered["pool"].as_str()) else {
        eprintln!("network.json has another form: {remembered}");
        return;
    };
    quietly("nft", &["delete", "table", "inet", &format!("sandboxd_{scope}")]);
    quietly("ip", &["route", "del", "blackhole", pool]);
    quietly("ip", &["link", "del", &format!("sb{scope}-gw")]);
}

fn quietly(program: &str, arguments: &[&str]) {
    let run = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if let Err(error) = run {
        eprintln!("{program} cannot be run: {error}");
    }
}
