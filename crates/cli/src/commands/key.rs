//! `sbx key`: API keys. Keys cannot be created over the network. Only users who may read the data directory of the service can create
//! them, with `sandboxd key` on its machine, which this command calls. A new key belongs to the account of the key that sbx uses.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sandboxd_client::Client;
use serde_json::json;

use super::batch::{BatchForm, ItemResult, for_each};
use crate::cli::{Global, KeyCommand, NewKey};
use crate::context;
use crate::failure::SBX_FAILURE;
use crate::output::{self, OutputFormat};

const PROGRAM: &str = "sandboxd";
/// The account of the first key that is created on a machine without one.
const FIRST_ACCOUNT: &str = "local";

/// Calls `sandboxd key`. It refuses a URL of another machine.
pub async fn key(global: &Global, format: OutputFormat, command: &KeyCommand) -> Result<ExitCode> {
    if let Some(url) = context::url(global)?.filter(|url| !is_local(url)) {
        bail!(
            "keys are managed on the machine of the service, {url}; run 'sandboxd {}' there",
            daemon_arguments(command, None).join(" ")
        );
    }
    let program = program()?;
    match command {
        KeyCommand::Create(new) => create(global, format, &program, new, command).await,
        KeyCommand::List { .. } => {
            let mut arguments = daemon_arguments(command, None);
            arguments.extend((format == OutputFormat::Json).then(|| "--json".to_owned()));
            // sandboxd prints its own messages; the exit code of a failure is that of sbx.
            // starts: sandboxd
            let ended = Command::new(&program).args(arguments).status();
            let ended = ended.with_context(|| program.display().to_string())?;
            Ok(if ended.success() { ExitCode::SUCCESS } else { ExitCode::from(SBX_FAILURE) })
        }
        KeyCommand::Revoke { ids } => {
            for_each(ids, BatchForm::of(format, ids.len()), async |id: &String| {
                let line = output_of(&program, &["key", "revoke", id]);
                let line = line.with_context(|| format!("cannot revoke {id}"))?;
                ItemResult::new(line, json!({"id": id, "revoked": true})).map(Some)
            })
            .await
        }
    }
}

async fn create(
    global: &Global,
    format: OutputFormat,
    program: &Path,
    new: &NewKey,
    command: &KeyCommand,
) -> Result<ExitCode> {
    let account = match &new.account {
        Some(account) => account.clone(),
        None => account_of(context::client(global)).await?,
    };
    let key = output_of(program, &daemon_arguments(command, Some(&account)))?;
    let scopes: Vec<&str> = new.scopes.split(',').map(str::trim).collect();
    let value = json!({"key": key, "account": account, "scopes": scopes, "label": new.label});
    let code = format.print_id(&value, &key)?;
    if format == OutputFormat::Plain {
        output::note(&format!("sbx: the key belongs to the account '{account}'"));
    }
    Ok(code)
}

/// The account of the key that sbx uses.
async fn account_of(client: Result<Client>) -> Result<String> {
    let usage = match client {
        Ok(client) => client.usage().await.map_err(anyhow::Error::new),
        Err(error) if is_missing_key(&error) => return Ok(FIRST_ACCOUNT.to_owned()),
        Err(error) => Err(error),
    };
    let usage = usage.context("cannot find out the account of your key; pass --account NAME")?;
    Ok(usage.account)
}

/// Whether there is no key yet. Another error of the configuration, such as a wrong URL, says nothing about the account.
fn is_missing_key(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<sandboxd_client::Error>();
    error.is_some_and(|error| error.details().get("reason").is_some_and(|reason| reason == "key"))
}

/// The output of `sandboxd`, which prints its own errors.
fn output_of(program: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<String> {
    // starts: sandboxd
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| program.display().to_string())?;
    ensure!(output.status.success(), "{PROGRAM} failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// The arguments of `sandboxd`. `account` is that of a new key, unless an option names it.
fn daemon_arguments(command: &KeyCommand, account: Option<&str>) -> Vec<String> {
    let mut arguments = vec!["key".to_owned()];
    match command {
        KeyCommand::Create(new) => {
            arguments.push("create".to_owned());
            let options = [
                ("--account", new.account.as_deref().or(account)),
                ("--scopes", Some(new.scopes.as_str())),
                ("--label", new.label.as_deref()),
                ("--expires", new.expires.as_deref()),
                ("--limits", new.limits.as_deref()),
            ];
            for (option, value) in options {
                arguments.extend(value.into_iter().flat_map(|value| [option.to_owned(), value.to_owned()]));
            }
        }
        KeyCommand::List { all } => {
            arguments.push("list".to_owned());
            arguments.extend(all.then(|| "--all".to_owned()));
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
        let new = |account: Option<&str>, limits: Option<&str>| {
            KeyCommand::Create(NewKey {
                account: account.map(str::to_owned),
                scopes: "read".into(),
                label: Some("x y".into()),
                expires: None,
                limits: limits.map(str::to_owned),
            })
        };
        assert_eq!(
            daemon_arguments(&new(None, None), Some("own")),
            ["key", "create", "--account", "own", "--scopes", "read", "--label", "x y"]
        );
        assert_eq!(
            daemon_arguments(&new(Some("a"), Some("none")), Some("own")),
            ["key", "create", "--account", "a", "--scopes", "read", "--label", "x y", "--limits", "none"]
        );
        assert_eq!(daemon_arguments(&KeyCommand::List { all: false }, None), ["key", "list"]);
        assert_eq!(daemon_arguments(&KeyCommand::List { all: true }, None), ["key", "list", "--all"]);
        let revoke = KeyCommand::Revoke { ids: vec!["key_1".to_owned()] };
        assert_eq!(daemon_arguments(&revoke, None), ["key", "revoke", "key_1"]);
    }

    #[tokio::test]
    async fn without_a_key_the_first_account_is_used() {
        let missing = Client::builder().url("https://a.example").build().err().unwrap();
        assert_eq!(account_of(Err(missing.into())).await.unwrap(), FIRST_ACCOUNT);
        let wrong = Client::builder().url("ftp://x").key("any").build().err().unwrap();
        let error = account_of(Err(wrong.into())).await.unwrap_err().to_string();
        assert!(error.contains("--account NAME"), "{error}");
        let unreachable = Client::builder().url("http://127.0.0.1:9").key("any").retries(0).build();
        let error = account_of(Ok(unreachable.unwrap())).await.unwrap_err().to_string();
        assert!(error.contains("--account NAME"), "{error}");
    }
}
