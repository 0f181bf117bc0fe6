//! `sbx key`: API keys. Keys cannot be created over the network. Only users who may read the data directory of the service can create
//! them, with `sandboxd key` on its machine, which this command calls.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::batch::{Form, ItemResult, for_each};
use crate::cli::{Global, KeyCommand};
use crate::{context, output};

const PROGRAM: &str = "sandboxd";

pub async fn key(global: &Global, json: bool, command: &KeyCommand) -> Result<ExitCode> {
    if let Some(url) = context::url(global)?.filter(|url| !is_local(url)) {
        bail!(
            "keys are managed on the machine of the service, {url}; run 'sandboxd {}' there",
            daemon_arguments(command, false).join(" ")
        );
    }
    let program = program()?;
    match command {
        KeyCommand::Create { account, scopes, label } if json => {
            let key = output_of(&program, &daemon_arguments(command, json))?;
            let scopes: Vec<&str> = scopes.split(',').map(str::trim).collect();
            output::json(&json!({"key": key, "account": account, "scopes": scopes, "label": label}))?;
            return Ok(ExitCode::SUCCESS);
        }
        KeyCommand::Revoke { ids } => {
            return for_each(ids, Form::of(json, ids.len()), async |id: &String| {
                let line = output_of(&program, &["key", "revoke", id]);
                let line = line.with_context(|| format!("cannot revoke {id}"))?;
                ItemResult::new(line, json!({"id": id, "revoked": true})).map(Some)
            })
            .await;
        }
        KeyCommand::Create { .. } | KeyCommand::List => {}
    }
    // sandboxd prints its own messages; the exit code of a failure is that of sbx.
    // starts: sandboxd
    let ended = Command::new(&program).args(daemon_arguments(command, json)).status();
    let ended = ended.with_context(|| program.display().to_string())?;
    Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::from(context::SBX_FAILURE) })
}

/// The output of `sandboxd`, which prints its own errors.
fn output_of(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
    // starts: sandboxd
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| program.display().to_string())?;
    ensure!(output.status.success(), "{PROGRAM} failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// The arguments of `sandboxd`.
fn daemon_arguments(command: &KeyCommand, json: bool) -> Vec<String> {
    let mut arguments = vec!["key".to_owned()];
    match command {
        KeyCommand::Create { account, scopes, label } => {
            arguments.extend(["create", "--account", account, "--scopes", scopes].map(str::to_owned));
            arguments.extend(label.iter().flat_map(|label| ["--label".to_owned(), label.clone()]));
        }
        KeyCommand::List => {
            arguments.push("list".to_owned());
            arguments.extend(json.then(|| "--json".to_owned()));
        }
        KeyCommand::Revoke { ids } => {
            arguments.push("revoke".to_owned());
            arguments.extend(ids.iter().cloned());
        }
    }
    arguments
}

/// `sandboxd` next to this program, where builds and packages put both, or on the PATH.
fn program() -> Result<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|own| own.parent().map(|dir| dir.join(PROGRAM)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let named = std::env::split_paths(&path).map(|dir| dir.join(PROGRAM));
    own.into_iter().chain(named).find(|candidate| candidate.is_file()).with_context(|| {
        format!("cannot find {PROGRAM} next to sbx or on the PATH; keys are managed on the machine of the service, with '{PROGRAM} key'")
    })
}

fn is_local(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split('/').next().unwrap_or_default();
    let host = match host.strip_prefix('[') {
        Some(ipv6) => ipv6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(host, _)| host),
    };
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_urls_are_local() {
        for url in ["https://127.0.0.1:8443", "https://localhost", "https://[::1]:8443/x"] {
            assert!(is_local(url), "{url}");
        }
        for url in [
            "https://a.example",
            "https://10.0.0.1:8443",
            "https://localhost.example",
            "https://[2001:db8::1]",
        ] {
            assert!(!is_local(url), "{url}");
        }
    }

    #[test]
    fn arguments_are_those_of_the_daemon() {
        let create =
            KeyCommand::Create { account: "a".into(), scopes: "read".into(), label: Some("x y".into()) };
        assert_eq!(
            daemon_arguments(&create, true),
            ["key", "create", "--account", "a", "--scopes", "read", "--label", "x y"]
        );
        assert_eq!(daemon_arguments(&KeyCommand::List, true), ["key", "list", "--json"]);
    }
}
