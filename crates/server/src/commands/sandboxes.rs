//! `sandboxd sandboxes`: the sandboxes of all accounts, for operators who know only the id from a user or from the log. Reads the database,
//! so it works without and beside a running service.

use std::process::ExitCode;

use anyhow::{Result, bail};
use api::{SandboxId, SandboxState, Timestamp};
use rules::{TimeMs, quoted};
use serde_json::json;
use store::{SandboxRecord, Store, StoreError};

use crate::app::open_store_of_list;
use crate::cli::SandboxesArguments;
use crate::config::Config;
use crate::stdout;

pub async fn run(config: &Config, arguments: &SandboxesArguments) -> Result<ExitCode> {
    let records = match open_store_of_list(config)? {
        Some(store) => {
            let found = find(&store, arguments).await;
            store.close().await;
            found?
        }
        None => Vec::new(),
    };
    if let Some(sandbox) = arguments.sandbox.as_ref().filter(|_| records.is_empty()) {
        bail!(
            "no sandbox {} in this data directory; terminated ones are found by their id until their retention ends",
            quoted(sandbox)
        );
    }
    let text = if arguments.json {
        let shown: Vec<_> = records.iter().map(as_json).collect();
        format!("{}\n", serde_json::to_string_pretty(&shown)?)
    } else {
        table(&records)
    };
    stdout::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The sandbox with an id, also a terminated one, those with a name, or all that are not terminated.
async fn find(store: &dyn Store, asked: &SandboxesArguments) -> Result<Vec<SandboxRecord>, StoreError> {
    let id = asked.sandbox.as_deref().and_then(|text| text.parse::<SandboxId>().ok());
    let mut records = match (&id, &asked.sandbox) {
        (Some(id), _) => store.get(id).await?.into_iter().collect(),
        (None, Some(name)) => {
            let mut named = store.living().await?;
            named.retain(|record| record.config.name() == Some(&**name));
            named
        }
        (None, None) => store.living().await?,
    };
    records.retain(|record| asked.account.as_ref().is_none_or(|account| record.account == *account));
    records.sort_by_key(|record| record.created_at);
    Ok(records)
}

/// When its state began.
fn since(record: &SandboxRecord) -> TimeMs {
    let lifecycle = &record.lifecycle;
    let end = lifecycle.end().map(|(at, _)| at);
    end.or(lifecycle.paused_since()).or(lifecycle.running_since()).unwrap_or(record.created_at)
}

fn state(record: &SandboxRecord) -> &'static str {
    match record.state() {
        SandboxState::Creating => "creating",
        SandboxState::Running => "running",
        SandboxState::Paused => "paused",
        SandboxState::Terminated => "terminated",
    }
}

/// Why it was terminated.
fn end_reason(record: &SandboxRecord) -> Option<&str> {
    record.lifecycle.end().map(|(_, reason)| reason)
}

fn table(records: &[SandboxRecord]) -> String {
    let heading = ["ID", "ACCOUNT", "NAME", "STATE", "SINCE", "IMAGE", "END REASON"].map(str::to_owned);
    let cells = |record: &SandboxRecord| {
        [
            record.id.to_string(),
            record.account.clone(),
            record.config.name().unwrap_or("-").to_owned(),
            state(record).to_owned(),
            Timestamp::from(since(record)).to_string(),
            record.config.image.clone(),
            end_reason(record).unwrap_or("-").to_owned(),
        ]
    };
    let rows: Vec<_> = std::iter::once(heading).chain(records.iter().map(cells)).collect();
    stdout::table(&rows)
}

fn as_json(record: &SandboxRecord) -> serde_json::Value {
    json!({
        "id": record.id,
        "account": record.account,
        "name": record.config.name(),
        "state": state(record),
        "since": Timestamp::from(since(record)),
        "createdAt": Timestamp::from(record.created_at),
        "image": record.config.image,
        "endReason": end_reason(record),
    })
}

#[cfg(test)]
mod tests {
    use store::MemoryStore;
    use store::conformance::{record, terminated};

    use super::*;

    fn asked(sandbox: Option<&str>, account: Option<&str>) -> SandboxesArguments {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        SandboxesArguments { sandbox: owned(sandbox), account: owned(account), json: false }
    }

    #[tokio::test]
    async fn an_id_leads_to_the_account_also_of_a_terminated_sandbox() {
        let store = MemoryStore::new();
        let of = |number, account: &str| SandboxRecord { account: account.to_owned(), ..record(number) };
        let ended = terminated(&of(2, "b"), TimeMs(2_000_000_000_000));
        for sandbox in [of(1, "a"), ended.clone(), of(3, "b")] {
            store.put(sandbox).await.unwrap();
        }
        let found = find(&store, &asked(Some(ended.id.as_str()), None)).await.unwrap();
        assert_eq!(found, std::slice::from_ref(&ended));
        let (_, reason) = ended.lifecycle.end().unwrap();
        let text = table(&found);
        let row: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row[..2], [ended.id.as_str(), "b"]);
        assert!(text.contains("terminated") && row.last() == Some(&reason), "{text}");
        // The list has those that are not terminated.
        let accounts = async |account| {
            let found = find(&store, &asked(None, account)).await.unwrap();
            found.into_iter().map(|record| record.account).collect::<Vec<_>>()
        };
        let mut all = accounts(None).await;
        all.sort();
        assert_eq!(all, ["a", "b"]);
        assert_eq!(accounts(Some("b")).await, ["b"]);
        assert!(find(&store, &asked(Some("no-such-name"), None)).await.unwrap().is_empty());
    }
}
