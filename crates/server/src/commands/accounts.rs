//! `sandboxd accounts`: the accounts that have something on this host, for scripts that do something for each of them, such as a backup.
//! Their keys may all have been revoked, which leaves their sandboxes running.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;
use store::{Store, StoreError};

use crate::app::open_existing_store;
use crate::config::Config;
use crate::stdout;

pub async fn run(config: &Config) -> Result<ExitCode> {
    let store = open_existing_store(config)?;
    let accounts = accounts(&store).await;
    store.close().await;
    let mut text = String::new();
    for account in accounts? {
        text.push_str(&account);
        text.push('\n');
    }
    stdout::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The accounts with sandboxes that are not terminated, or with snapshots.
async fn accounts(store: &dyn Store) -> Result<BTreeSet<String>, StoreError> {
    let sandboxes = store.living().await?.into_iter().map(|sandbox| sandbox.account);
    let mut accounts: BTreeSet<String> = sandboxes.collect();
    accounts.extend(store.snapshots().await?.into_iter().map(|snapshot| snapshot.account));
    Ok(accounts)
}

#[cfg(test)]
mod tests {
    use rules::TimeMs;
    use store::conformance::{record, terminated};
    use store::{MemoryStore, SandboxRecord};

    use super::*;

    #[tokio::test]
    async fn accounts_with_sandboxes_are_listed_once_whatever_their_keys() {
        let store = MemoryStore::new();
        let of = |number, account: &str| SandboxRecord { account: account.to_owned(), ..record(number) };
        for sandbox in [of(1, "b"), of(2, "a"), of(3, "b")] {
            store.put(sandbox).await.unwrap();
        }
        store.put(terminated(&of(4, "c"), TimeMs(2_000_000_000_000))).await.unwrap();
        let found: Vec<String> = accounts(&store).await.unwrap().into_iter().collect();
        assert_eq!(found, ["a", "b"]);
    }
}
