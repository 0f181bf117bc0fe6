//! `sandboxd accounts`: the accounts, and what each has on this host. With `--quiet` for scripts that do something for each of them, such as
//! a backup. The keys of an account may all have been revoked, which leaves its sandboxes running.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use admission::wall_clock::now;
use anyhow::Result;
use api::SandboxState;
use driver_host::disk_bytes_in;
use rules::{TimeMs, key_end};
use serde::Serialize;
use store::{Store, StoreError};

use crate::app::open_store_of_list;
use crate::cli::AccountsArguments;
use crate::commands::serve::lock_path;
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
    /// vCPUs and memory of its running sandboxes, which count in the quotas.
    vcpus: u64,
    memory_mb: u64,
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

/// `file` is the configuration file that was read.
pub async fn run(config: &Config, file: Option<&Path>, arguments: &AccountsArguments) -> Result<ExitCode> {
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
    if let Some(line) = origin_of_quotas(file, &config.data_dir).filter(|_| !arguments.quiet) {
        eprintln!("sandboxd: {line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Why the quotas may be others than those that a running service enforces, which are those of the file at its start.
fn origin_of_quotas(file: Option<&Path>, data_dir: &Path) -> Option<String> {
    let in_force = "'sbx usage' shows an account those in force";
    let Some(file) = file else {
        return Some(format!(
            "no configuration file was read, so the quotas are the defaults; --config or SANDBOXD_CONFIG names that of the service, and \
             {in_force}"
        ));
    };
    // The service writes its lock when it starts.
    let changed = |path: &Path| path.metadata().and_then(|found| found.modified());
    let [written, started]: [SystemTime; 2] = [changed(file).ok()?, changed(&lock_path(data_dir)).ok()?];
    (written > started).then(|| {
        format!(
            "{} was changed after the last start of the service: the quotas hold from the next start on, and {in_force}",
            file.display()
        )
    })
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
            _ => {
                account.running += 1;
                account.vcpus += u64::from(sandbox.config.resources.cpu);
                account.memory_mb += u64::from(sandbox.config.resources.memory_mb);
            }
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
    // Numbers with a quota are shown as USED/QUOTA.
    let heading = [
        "ACCOUNT",
        "RUNNING",
        "PAUSED",
        "SANDBOXES",
        "VCPUS",
        "MEMORY MB",
        "SNAPSHOTS",
        "DISK MB",
        "OCCUPIED MB",
        "KEYS",
    ];
    let cells = |(name, account): (&String, &Holdings)| {
        let of_quota = |used: u64, quota: &str| match account.quotas.get(quota) {
            None | Some(0) => used.to_string(),
            Some(quota) => format!("{used}/{quota}"),
        };
        [
            name.clone(),
            account.running.to_string(),
            account.paused.to_string(),
            of_quota(account.running + account.paused, "sandboxes"),
            of_quota(account.vcpus, "vcpus"),
            of_quota(account.memory_mb, "memory_mb"),
            of_quota(account.snapshots, "snapshots"),
            of_quota(account.disk_mb, "disk_mb"),
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
        let own = AccountQuotas {
            disk_mb: Some(70_000),
            sandboxes: Some(5),
            vcpus: Some(16),
            ..AccountQuotas::default()
        };
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
        assert_eq!(row("d"), ["d", "0", "0", "0", "0", "0", "0/1000", "0", "0", "1"]);
        let b = row("b");
        assert_eq!(b[3..6], ["2/5", "4/16", "8192"]);
        assert!(b[7].ends_with("/70000"), "{b:?}");
        // Paused sandboxes count as sandboxes only.
        assert_eq!(row("a")[3..6], ["1", "0", "0"]);
    }

    #[test]
    fn quotas_that_may_not_be_in_force_are_explained() {
        let dir = tempfile::tempdir().unwrap();
        let (file, lock) = (dir.path().join("config.toml"), lock_path(dir.path()));
        let origin = |file: Option<&Path>| origin_of_quotas(file, dir.path());
        assert!(origin(None).unwrap().contains("no configuration file was read"));
        // A service that was never started has nothing else in force.
        std::fs::write(&file, "").unwrap();
        assert_eq!(origin(Some(&file)), None);
        std::fs::write(&lock, "1").unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        let set = |at| std::fs::File::options().write(true).open(&lock).unwrap().set_modified(at).unwrap();
        let second = std::time::Duration::from_secs(1);
        set(written + second);
        assert_eq!(origin(Some(&file)), None);
        set(written - second);
        assert!(origin(Some(&file)).unwrap().contains("changed after the last start"));
    }
}
