//! Settings of single accounts that no account has.

use std::path::Path;

use rules::mistyped;
use store::SqliteStore;

use crate::app::database;
use crate::config::Config;

/// A warning for each table of an account that no key has, as a mistyped name leaves it. None before there are keys.
pub fn unknown(config: &Config) -> Vec<String> {
    let named = named(config);
    if named.is_empty() {
        return Vec::new();
    }
    // A start reports a database that cannot be read.
    let accounts = SqliteStore::accounts_at(&database(&config.data_dir)).unwrap_or_default();
    if accounts.is_empty() {
        return Vec::new();
    }
    let accounts: Vec<&str> = accounts.iter().map(String::as_str).collect();
    let unknown = named.into_iter().filter(|(_, account)| !accounts.contains(account));
    unknown.map(|(table, account)| message(table, account, &accounts)).collect()
}

/// As [`unknown`], for an account that a command names.
pub fn unknown_account(data_dir: &Path, account: &str) -> Option<String> {
    let accounts = SqliteStore::accounts_at(&database(data_dir)).unwrap_or_default();
    let accounts: Vec<&str> = accounts.iter().map(String::as_str).collect();
    let is_unknown = !accounts.is_empty() && !accounts.contains(&account);
    is_unknown.then(|| lack(account, &accounts))
}

fn message(table: &str, account: &str, accounts: &[&str]) -> String {
    format!("{table}.accounts.\"{account}\": {}", lack(account, accounts))
}

fn lack(account: &str, accounts: &[&str]) -> String {
    let meant =
        mistyped(account, accounts).map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
    format!("no key has this account{meant}")
}

/// The accounts that have settings of their own, with the tables of these.
fn named(config: &Config) -> Vec<(&'static str, &str)> {
    let limits = config.limits.accounts.keys().map(|name| ("limits", name.as_str()));
    let quotas = config.quotas.accounts.keys().map(|name| ("quotas", name.as_str()));
    let isolation = config.isolation.accounts.keys().map(|name| ("isolation", name.as_str()));
    let images = config.images.accounts.keys().map(|name| ("images", name.as_str()));
    limits.chain(quotas).chain(isolation).chain(images).collect()
}
