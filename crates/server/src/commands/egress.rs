//! `sandboxd egress`: explains what a sandbox may reach. Works while a server runs.

use std::process::ExitCode;

use anyhow::{Result, bail};
use api::SandboxState;
use rules::quoted;
use serde_json::json;
use store::{SandboxRecord, Store};

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
    let record = store.get(&asked.id).await;
    store.close().await;
    let Some(record) = record?.filter(|record| record.state != SandboxState::Terminated) else {
        eprintln!(
            "sandboxd: no sandbox {} in this data directory; it may have been terminated",
            quoted(asked.id.as_str())
        );
        return Ok(ExitCode::from(UNKNOWN));
    };
    if config.egress.network == NetworkKind::None {
        bail!("egress.network is \"none\": sandboxes have no network");
    }
    let known = look_up(config, &record, &asked.target).await?;
    let explanation = explain(&record.config.network.egress, &asked.target, &known);
    if asked.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&asked, &explanation))?);
    } else {
        print!("{}", as_text(&asked, &explanation));
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

fn as_text(asked: &EgressCheckArguments, explanation: &Explanation) -> String {
    let verdict = if explanation.passes { "passes" } else { "is refused" };
    let mut text = format!("{} from {} {verdict}\n", asked.target, asked.id);
    for (what, line) in &explanation.lines {
        text.push_str(&format!("  {what:<10} {line}\n"));
    }
    text
}

fn as_json(asked: &EgressCheckArguments, explanation: &Explanation) -> serde_json::Value {
    json!({
        "sandboxId": asked.id,
        "target": asked.target.to_string(),
        "passes": explanation.passes,
        "reason": explanation.reason,
        "explanation": explanation.lines.iter().map(|(what, line)| format!("{what}: {line}")).collect::<Vec<_>>(),
    })
}
