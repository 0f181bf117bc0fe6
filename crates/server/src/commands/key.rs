//! `sandboxd key`: API keys. Works while a server runs, which picks up a change within a second.

use std::process::ExitCode;

use admission::key_uses::{self, LastUses};
use admission::keyring::hash_of;
use admission::wall_clock::now;
use anyhow::{Result, bail, ensure};
use rules::{KeyText, TimeMs, is_key_listed, key_end};
use serde_json::json;
use store::{Batch, KeyRecord, SqliteStore, Store, StoreError, Write};

use crate::app::{open_existing_store, open_store, open_store_of_list};
use crate::cli::{KeyCommand, KeyFormat};
use crate::commands::serve::lock_path;
use crate::config::Config;
use crate::new_key::{NewKey, new_text, register};
use crate::replaced_database::refuse_other;
use crate::stdout;

pub async fn run(config: &Config, command: KeyCommand) -> Result<ExitCode> {
    refuse_other(&config.data_dir, &lock_path(&config.run_dir))?;
    let store = match &command {
        KeyCommand::Create { .. } => open_store(config)?,
        KeyCommand::List { json, .. } => match open_store_of_list(config)? {
            Some(store) => store,
            None => {
                stdout::print(if *json { "[]\n" } else { "" })?;
                return Ok(ExitCode::SUCCESS);
            }
        },
        KeyCommand::Revoke { .. } | KeyCommand::Delete { .. } => open_existing_store(config)?,
    };
    let uses = match &command {
        // The list does not depend on them.
        KeyCommand::List { .. } => key_uses::read(&config.data_dir).unwrap_or_default(),
        _ => LastUses::new(),
    };
    let done = carry_out(&store, command, &uses).await;
    store.close().await;
    done?;
    Ok(ExitCode::SUCCESS)
}

async fn carry_out(store: &SqliteStore, command: KeyCommand, uses: &LastUses) -> Result<()> {
    match command {
        KeyCommand::Create { account, scopes, label, expires, limits, format } => {
            let text = new_text();
            let valid_ms = expires.map(|lifetime| lifetime.ms);
            let is_known = store.keys().await?.iter().any(|key| key.account == account);
            let key = register(store, &text, NewKey { account, scopes, label, valid_ms, limits }).await?;
            if !is_known {
                eprintln!("sandboxd: '{}' is a new account", key.account);
            }
            match format {
                KeyFormat::Native => println!("{}", text.as_str()),
                KeyFormat::E2b => println!("{}", text.e2b_text()),
            }
        }
        KeyCommand::List { json: true, account, .. } => {
            let keys: Vec<_> = keys_of(store, account).await?.iter().map(|key| as_json(key, uses)).collect();
            stdout::print(&format!("{}\n", serde_json::to_string_pretty(&keys)?))?;
        }
        KeyCommand::List { json: false, all, account } => {
            let mut keys = keys_of(store, account).await?;
            let hidden = if all { 0 } else { hide_old(&mut keys, now()) };
            stdout::print(&table(&keys, uses))?;
            if let Some(line) = hidden_line(hidden) {
                eprintln!("sandboxd: {line}");
            }
        }
        KeyCommand::Revoke { id, account } => {
            let ids = match id {
                Some(id) => vec![id_of(store, id).await?],
                None => ids_to_revoke(store, account).await?,
            };
            for id in ids {
                revoke(store, &id).await?;
            }
        }
        KeyCommand::Delete { id } => bail!(not_deleted(id)),
    }
    Ok(())
}

/// All keys, or those of one account.
async fn keys_of(store: &dyn Store, account: Option<String>) -> Result<Vec<KeyRecord>, StoreError> {
    let mut keys = store.keys().await?;
    keys.retain(|key| account.as_ref().is_none_or(|account| key.account == *account));
    Ok(keys)
}

/// The ids of the keys of an account that are not revoked. An account without one is an error, as a mistyped name would be.
async fn ids_to_revoke(store: &dyn Store, account: Option<String>) -> Result<Vec<String>> {
    let name = account.clone().unwrap_or_default();
    let keys = keys_of(store, account).await?;
    let ids: Vec<String> =
        keys.into_iter().filter(|key| key.revoked_at.is_none()).map(|key| key.id).collect();
    ensure!(
        !ids.is_empty(),
        "the account '{name}' has no key that could be revoked; 'sandboxd key list' shows all accounts"
    );
    Ok(ids)
}

async fn revoke(store: &dyn Store, id: &str) -> Result<()> {
    match store.commit(Batch::new().with(Write::RevokeKey { id: id.to_owned(), at: now() })).await {
        Err(StoreError::NoSuchKey { .. }) => {
            bail!("there is no key '{id}'; 'sandboxd key list --all' shows all ids");
        }
        revoked => revoked?,
    };
    println!("{id} is revoked");
    Ok(())
}

/// The message does not repeat a key.
fn not_deleted(id: Option<String>) -> String {
    let id = id.filter(|id| KeyText::parse_any(id).is_err()).unwrap_or_else(|| "ID".to_owned());
    format!("keys are not deleted, because their records are kept; 'sandboxd key revoke {id}' ends a key")
}

/// The id of a key that is given by its id, or by its text, as a key that leaked is.
async fn id_of(store: &dyn Store, given: String) -> Result<String> {
    let Ok(text) = KeyText::parse_any(&given) else { return Ok(given) };
    let hash = hash_of(&text);
    match store.keys().await?.into_iter().find(|key| key.hash == hash) {
        Some(key) => Ok(key.id),
        // The message does not repeat the key.
        None => bail!("this service does not have that key; 'sandboxd key list --all' shows all ids"),
    }
}

fn as_json(key: &KeyRecord, uses: &LastUses) -> serde_json::Value {
    json!({
        "id": key.id,
        "account": key.account,
        "scopes": key.scopes.split(',').collect::<Vec<_>>(),
        "label": key.name,
        "begins": key.prefix_hint,
        "createdAt": time(key.created_at),
        "revokedAt": key.revoked_at.map(time),
        "expiresAt": key.expires_at.map(time),
        "lastUsedAt": uses.get(&key.id).copied().map(time),
        "limits": key.limits.to_string(),
    })
}

fn time(at: TimeMs) -> api::Timestamp {
    api::Timestamp(at.0)
}

/// The last use is known to the minute.
fn minute(at: TimeMs) -> String {
    const MINUTE_MS: u64 = 60_000;
    let text = time(TimeMs(at.0 / MINUTE_MS * MINUTE_MS)).to_string();
    text.replace(":00.000Z", "Z")
}

/// Removes the keys that ended long ago, and returns their number.
fn hide_old(keys: &mut Vec<KeyRecord>, now: TimeMs) -> usize {
    let all = keys.len();
    keys.retain(|key| is_key_listed(key_end(key.revoked_at, key.expires_at, now), now));
    all - keys.len()
}

/// Printed below the list. `None` if no key is hidden.
fn hidden_line(hidden: usize) -> Option<String> {
    let keys = match hidden {
        0 => return None,
        1 => "1 key that ended more than 7 days ago is hidden".to_owned(),
        hidden => format!("{hidden} keys that ended more than 7 days ago are hidden"),
    };
    Some(format!("{keys}; 'sandboxd key list --all' shows all"))
}

fn table(keys: &[KeyRecord], uses: &LastUses) -> String {
    let heading = [
        "ID",
        "ACCOUNT",
        "SCOPES",
        "BEGINS",
        "CREATED",
        "LAST USED",
        "EXPIRES",
        "REVOKED",
        "LIMITS",
        "LABEL",
    ];
    let heading = heading.map(str::to_owned);
    let cells = |key: &KeyRecord| cells(key, uses.get(&key.id).copied());
    let rows: Vec<[String; 10]> = std::iter::once(heading).chain(keys.iter().map(cells)).collect();
    stdout::table(&rows)
}

fn cells(key: &KeyRecord, last_used: Option<TimeMs>) -> [String; 10] {
    let or_none = |at: Option<TimeMs>| at.map_or_else(|| "-".to_owned(), |at| time(at).to_string());
    [
        key.id.clone(),
        key.account.clone(),
        key.scopes.clone(),
        format!("{}…", key.prefix_hint),
        time(key.created_at).to_string(),
        last_used.map_or_else(|| "-".to_owned(), minute),
        or_none(key.expires_at),
        or_none(key.revoked_at),
        key.limits.to_string(),
        key.name.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use rules::KeyLimits;
    use store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_key_is_found_by_its_id_and_by_its_text() {
        let store = MemoryStore::new();
        let text = new_text();
        let new = NewKey {
            account: "team".to_owned(),
            scopes: "read".parse().unwrap(),
            label: None,
            valid_ms: None,
            limits: KeyLimits::default(),
        };
        let id = register(&store, &text, new).await.unwrap().id;
        for given in [id.clone(), text.as_str().to_owned(), text.e2b_text()] {
            assert_eq!(id_of(&store, given).await.unwrap(), id);
        }
        let other = new_text();
        let error = id_of(&store, other.as_str().to_owned()).await.unwrap_err().to_string();
        assert!(!error.contains(other.as_str()), "{error}");
    }

    #[tokio::test]
    async fn all_keys_of_an_account_are_revoked_and_no_others() {
        let store = MemoryStore::new();
        for account in ["team", "other", "team"] {
            let new = NewKey {
                account: account.to_owned(),
                scopes: "read".parse().unwrap(),
                label: None,
                valid_ms: None,
                limits: KeyLimits::default(),
            };
            register(&store, &new_text(), new).await.unwrap();
        }
        let team = || Some("team".to_owned());
        assert_eq!(keys_of(&store, team()).await.unwrap().len(), 2);
        assert_eq!(keys_of(&store, None).await.unwrap().len(), 3);
        for id in ids_to_revoke(&store, team()).await.unwrap() {
            revoke(&store, &id).await.unwrap();
        }
        let valid = store.keys().await.unwrap().into_iter().filter(|key| key.revoked_at.is_none());
        assert_eq!(valid.map(|key| key.account).collect::<Vec<_>>(), ["other"]);
        let error = ids_to_revoke(&store, team()).await.unwrap_err().to_string();
        assert!(error.contains("the account 'team' has no key"), "{error}");
    }

    #[test]
    fn a_delete_names_the_command_that_revokes() {
        let of = |id: &str| not_deleted(Some(id.to_owned()));
        assert!(of("key_1").contains("'sandboxd key revoke key_1'"));
        let text = new_text();
        assert!(of(text.as_str()).contains("'sandboxd key revoke ID'"));
    }

    fn key(id: &str, name: Option<&str>, (revoked_at, limits): (Option<TimeMs>, &str)) -> KeyRecord {
        KeyRecord {
            id: id.to_owned(),
            hash: [0; 32],
            account: "default".to_owned(),
            scopes: "read,execute".to_owned(),
            name: name.map(str::to_owned),
            prefix_hint: "sbk_ab12".to_owned(),
            created_at: TimeMs(0),
            revoked_at,
            expires_at: revoked_at.map(|at| at.after(1000)),
            limits: limits.parse().unwrap(),
        }
    }

    #[test]
    fn keys_that_ended_long_ago_are_counted_only() {
        let now = TimeMs(30 * 24 * 3_600_000);
        let mut keys = vec![
            key("key_valid", None, (None, "none")),
            key("key_recent", None, (Some(now.before(3_600_000)), "none")),
            key("key_old", None, (Some(TimeMs(1000)), "none")),
        ];
        let hidden = hide_old(&mut keys, now);
        let ids: Vec<&str> = keys.iter().map(|key| key.id.as_str()).collect();
        assert_eq!((ids.as_slice(), hidden), (["key_valid", "key_recent"].as_slice(), 1));
        let line = "1 key that ended more than 7 days ago is hidden; 'sandboxd key list --all' shows all";
        assert_eq!(hidden_line(hidden).as_deref(), Some(line));
        assert!(hidden_line(2).unwrap().starts_with("2 keys that ended"));
        assert_eq!(hidden_line(0), None);
    }

    #[test]
    fn columns_stand_below_their_headings() {
        let keys = [
            key("key_1", Some("for CI"), (None, "none")),
            key("key_22", None, (Some(TimeMs(1000)), "account")),
        ];
        let text = table(&keys, &[("key_1".to_owned(), TimeMs(60_500))].into());
        assert_eq!(
            text,
            "ID      ACCOUNT  SCOPES        BEGINS     CREATED                   LAST USED          \
             EXPIRES                   REVOKED                   LIMITS   LABEL\n\
             key_1   default  read,execute  sbk_ab12…  1970-01-01T00:00:00.000Z  1970-01-01T00:01Z  \
             -                         -                         none     for CI\n\
             key_22  default  read,execute  sbk_ab12…  1970-01-01T00:00:00.000Z  -                  \
             1970-01-01T00:00:02.000Z  1970-01-01T00:00:01.000Z  account\n"
        );
    }
}
