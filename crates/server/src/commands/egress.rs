//! `sandboxd egress`: explains what a sandbox may reach. Works while a server runs.

use std::process::ExitCode;

use anyhow::{Result, bail};
use api::{SandboxId, SandboxState};
use rules::quoted;
use serde_json::json;
use store::{SandboxRecord, Store, StoreError};

use crate::app::{network, open_existing_store, server_scope};
use crate::cli::{EgressCheckArguments, EgressCommand};
use crate::config::{Config, NetworkKind};
use crate::explain::{Explanation, Host, Known, Target, explain, wants_addresses};

const REFUSED: u8 = 1;
/// The exit code of a command line that is not understood.
const UNKNOWN: u8 = 2;

pub async fn run(config: &Config, command: EgressCommand) -> Result<ExitCode> {
    let EgressCommand::Check(asked) = command;
    let store = open_existing_store(config)?;
    let found = find(&store, &asked).await;
    store.close().await;
    let record = match found? {
        NamedSandbox::One(record) => record,
        NamedSandbox::None => {
            eprintln!(
                "sandboxd: no sandbox {} in this data directory; it may have been terminated",
                quoted(&asked.sandbox)
            );
            return Ok(ExitCode::from(UNKNOWN));
        }
        NamedSandbox::Several(accounts) => {
            eprintln!(
                "sandboxd: several accounts have a sandbox with the name {}: {}; choose one with --account",
                quoted(&asked.sandbox),
                accounts.join(", ")
            );
            return Ok(ExitCode::from(UNKNOWN));
        }
    };
    if config.egress.network == NetworkKind::None {
        bail!("egress.network is \"none\": sandboxes have no network");
    }
    let known = look_up(config, &record, &asked.target).await?;
    let explanation = explain(&record.config.network.egress, &asked.target, &known);
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&record.id, &asked.target, &explanation))?);
    } else {
        print!("{}", as_text(&record.id, &asked.target, &explanation));
    }
    Ok(if explanation.passes { ExitCode::SUCCESS } else { ExitCode::from(REFUSED) })
}

/// Looks up what the verdict depends on, as the server would.
async fn look_up(config: &Config, record: &SandboxRecord, target: &Target) -> Result<Known> {
    let settings = network::settings(config, &server_scope(config))?;
    Ok(match &target.host {
        Host::Name(name) if wants_addresses(&record.config.network.egress, target) => {
            Known::Resolved(net::resolver(&settings)?.addresses(name).await)
        }
        Host::Address(address) => {
            Known::Address(net::ranges(&settings).closed(*address, net::owner_of(*address)?))
        }
        Host::Name(_) | Host::Six(_) => Known::Nothing,
    })
}

/// The sandboxes that an id or a name means.
#[derive(Debug)]
enum NamedSandbox {
    One(Box<SandboxRecord>),
    None,
    /// Of these accounts.
    Several(Vec<String>),
}

async fn find(store: &dyn Store, asked: &EgressCheckArguments) -> Result<NamedSandbox, StoreError> {
    let is_of_account =
        |record: &SandboxRecord| asked.account.as_ref().is_none_or(|account| record.account == *account);
    if let Ok(id) = asked.sandbox.parse() {
        let living = store.get(&id).await?.filter(|record| record.state() != SandboxState::Terminated);
        return Ok(living
            .filter(is_of_account)
            .map_or(NamedSandbox::None, |record| NamedSandbox::One(Box::new(record))));
    }
    let mut named = store.living().await?;
    named.retain(|record| record.config.name() == Some(&*asked.sandbox) && is_of_account(record));
    Ok(match named.pop() {
        Some(one) if named.is_empty() => NamedSandbox::One(Box::new(one)),
        Some(last) => {
            NamedSandbox::Several(named.into_iter().chain([last]).map(|record| record.account).collect())
        }
        None => NamedSandbox::None,
    })
}

fn as_text(id: &SandboxId, target: &Target, explanation: &Explanation) -> String {
    let verdict = if explanation.passes { "passes" } else { "is refused" };
    let mut text = format!("{target} from {id} {verdict}\n");
    for (what, line) in &explanation.lines {
        text.push_str(&format!("  {what:<10} {line}\n"));
    }
    text
}

fn as_json(id: &SandboxId, target: &Target, explanation: &Explanation) -> serde_json::Value {
    json!({
        "sandboxId": id,
        "target": target.to_string(),
        "passes": explanation.passes,
        "reason": explanation.reason,
        "explanation": explanation.lines.iter().map(|(what, line)| format!("{what}: {line}")).collect::<Vec<_>>(),
    })
}
