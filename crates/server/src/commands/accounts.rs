//! `sandboxd accounts`: the accounts, and what each has on this host. With `--quiet` for scripts that do something for each of them, such as
//! a backup. The keys of an account may all have been revoked, which leaves its sandboxes running.

use std::collections::BTreeMap;
use std::process::ExitCode;

use admission::wall_clock::now;
use anyhow::Result;
use api::SandboxState;
use driver_host::disk_bytes_in;
use rules::{TimeMs, key_end};
use serde::Serialize;
use store::{Store, StoreError};

use crate::app::open_store_of_list;
use crate::cli::AccountsArguments;
use crate::config::Config;
use crate::stdout;

const MB: u64 = 1 << 20;

/// What an account has on this host.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Holdings {
    /// Sandboxes, with those that are being created.
    running: u64,
    paused: u64,
    /// The sizes of the disks of its sandboxes, which count in the quota.
    disk_mb: u64,
    /// What its disks and snapshots occupy, with the steps of templates.
    occupied_mb: u64,
    snapshots: u64,
    /// Keys that are valid.
    keys: u64,
    /// 0 is unlimited.
    quotas: BTreeMap<&'static str, u64>,
}

impl Holdings {
    /// Whether scripts that do something for each account have something to do.
    fn is_on_host(&self) -> bool {
        self.running + self.paused + self.snapshots > 0
    }
}

type Accounts = BTreeMap<String, Holdings>;

pub async fn run(config: &Config, arguments: &AccountsArguments) -> Result<ExitCode> {
    let accounts = match open_store_of_list(config)? {
        Some(store) => {
            let found = holdings(&store, config, now()).await;
            store.close().await;
            found?
        }
        None => Accounts::new(),
    };
    let text = if arguments.quiet {
        names(&accounts)
    } else if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&accounts)?)
    } else {
        table(&accounts)
    };
    stdout::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The accounts that have a key, also a revoked one, sandboxes that are not terminated, or snapshots.
async fn holdings(store: &dyn Store, config: &Config, now: TimeMs) -> Result<Accounts, StoreError> {
    let mut accounts = Accounts::new();
    let mut occupied: BTreeMap<String, u64> = BTreeMap::new();
    for key in store.keys().await? {
        let is_valid = key_end(key.revoked_at, key.expires_at, now).is_none();
        accounts.entry(key.account).or_default().keys += u64::from(is_valid);
    }
    for sandbox in store.living().await? {
        *occupied.entry(sandbox.account.clone()).or_default() += disk_bytes_in(&config.data_dir, &sandbox.id);
        let state = sandbox.state();
        let account = accounts.entry(sandbox.account).or_default();
        account.disk_mb += u64::from(sandbox.config.resources.disk_mb);
        match state {
            SandboxState::Paused => account.paused += 1,
            _ => account.running += 1,
        }
    }
    for snapshot in store.snapshots().await? {
        *occupied.entry(snapshot.account.clone()).or_default() += snapshot.bytes;
        accounts.entry(snapshot.account).or_default().snapshots += 1;
    }
    for (name, account) in &mut accounts {
        account.occupied_mb = occupied.get(name).copied().unwrap_or(0).div_ceil(MB);
        account.quotas = config.quotas.of_account(name);
    }
    Ok(accounts)
}

fn names(accounts: &Accounts) -> String {
    let on_host = accounts.iter().filter(|(_, account)| account.is_on_host());
    on_host.map(|(name, _)| format!("{name}\n")).collect()
}

fn table(accounts: &Accounts) -> String {
    let heading = ["ACCOUNT", "RUNNING", "PAUSED", "SNAPSHOTS", "DISK MB", "QUOTA MB", "OCCUPIED MB", "KEYS"];
    let cells = |(name, account): (&String, &Holdings)| {
        let quota = account.quotas.get("disk_mb").copied().filter(|quota| *quota > 0);
        [
            name.clone(),
            account.running.to_string(),
            account.paused.to_string(),
            account.snapshots.to_string(),
            account.disk_mb.to_string(),
            quota.map_or_else(|| "-".to_owned(), |quota| quota.to_string()),
            account.occupied_mb.to_string(),
            account.keys.to_string(),
        ]
    };
    let rows: Vec<_> =
        std::iter::once(heading.map(str::to_owned)).chain(accounts.iter().map(cells)).collect();
    stdout::table(&rows)
}

#[cfg(test)]
mod tests {
    use rules::{KeyLimits, PausedProcesses, Scopes};
    use store::conformance::{record, terminated};
    use store::{MemoryStore, SandboxRecord};

    use super::*;
    use crate::config::AccountQuotas;
    use crate::new_key::{NewKey, new_text, register};

    fn of(number: u32, account: &str) -> SandboxRecord {
        SandboxRecord { account: account.to_owned(), ..record(number) }
    }

    #[tokio::test]
    async fn accounts_have_their_sandboxes_keys_and_quotas() {
        let store = MemoryStore::new();
        let mut paused = of(2, "a");
        paused.lifecycle = paused.lifecycle.paused(TimeMs(2_000_000_000_000), PausedProcesses::Frozen);
        for sandbox in [of(1, "b"), paused, of(3, "b")] {
            store.put(sandbox).await.unwrap();
        }
        store.put(terminated(&of(4, "c"), TimeMs(2_000_000_000_000))).await.unwrap();
        let key = NewKey {
            account: "d".to_owned(),
            scopes: Scopes::ALL,
            label: None,
            valid_ms: None,
            limits: KeyLimits::OfAccount,
        };
        register(&store, &new_text(), key).await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { data_dir: dir.path().to_owned(), ..Config::default() };
        let own = AccountQuotas { disk_mb: Some(70_000), ..AccountQuotas::default() };
        config.quotas.accounts.insert("b".to_owned(), own);
        let accounts = holdings(&store, &config, TimeMs(0)).await.unwrap();
        // Whatever their keys.
        assert_eq!(names(&accounts), "a\nb\n");
        let b = &accounts["b"];
        assert_eq!((b.running, b.paused, b.keys, b.quotas["disk_mb"]), (2, 0, 0, 70_000));
        assert_eq!(b.disk_mb, 2 * u64::from(record(1).config.resources.disk_mb));
        assert_eq!((accounts["a"].paused, accounts["d"].keys), (1, 1));
        let text = table(&accounts);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("d"), ["d", "0", "0", "0", "0", "-", "0", "1"]);
        assert_eq!(row("b")[5], "70000");
    }
}
