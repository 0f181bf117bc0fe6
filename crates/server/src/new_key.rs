//! Generates API keys. Called by `key create` and for the first key.
//!
//! Only the hash of a key is stored; its text is returned once.

use admission::keyring;
use admission::wall_clock::now;
use anyhow::{Result, ensure};
use rules::{KeyLimits, KeyText, Scopes};
use store::{Batch, KeyRecord, Store, Write};

const ID_CHARS: usize = 16;
const ACCOUNT_CHARS: usize = 64;
const LABEL_CHARS: usize = 200;

/// What its creator chooses of a new key.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub account: String,
    pub scopes: Scopes,
    pub label: Option<String>,
    /// How long it is valid; `None` for ever.
    pub valid_ms: Option<u64>,
    pub limits: KeyLimits,
}

impl NewKey {
    fn check(&self) -> Result<()> {
        let account = &self.account;
        ensure!(
            (1..=ACCOUNT_CHARS).contains(&account.len())
                && account.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-@+".contains(&byte)),
            "the account is {}; it must be 1 to {ACCOUNT_CHARS} letters, digits or any of . _ - @ +",
            rules::quoted(account)
        );
        if let Some(label) = &self.label {
            ensure!(
                label.len() <= LABEL_CHARS && !label.chars().any(char::is_control),
                "the label is {}; it must be at most {LABEL_CHARS} bytes without control characters",
                rules::quoted(label)
            );
        }
        Ok(())
    }
}

/// The text of a new key, which is not registered yet.
pub fn new_text() -> KeyText {
    KeyText::format(rand::random())
}

/// Registers a key. It is durable when this returns.
pub async fn register(store: &dyn Store, text: &KeyText, key: NewKey) -> Result<KeyRecord> {
    key.check()?;
    let created_at = now();
    let record = KeyRecord {
        id: new_id(),
        hash: keyring::hash_of(text),
        account: key.account,
        scopes: key.scopes.to_string(),
        name: key.label,
        prefix_hint: text.hint().to_owned(),
        created_at,
        revoked_at: None,
        expires_at: key.valid_ms.map(|ms| created_at.after(ms)),
        limits: key.limits,
    };
    store.commit(Batch::new().with(Write::PutKey(Box::new(record.clone())))).await?;
    Ok(record)
}

fn new_id() -> String {
    let random: [u8; ID_CHARS] = rand::random();
    let chars = random.map(|byte| char::from(api::ALPHABET[usize::from(byte % 32)]));
    format!("key_{}", String::from_iter(chars))
}

#[cfg(test)]
mod tests {
    use store::MemoryStore;

    use super::*;

    fn key(account: &str, label: &str) -> NewKey {
        NewKey {
            account: account.to_owned(),
            scopes: "read,admin".parse().unwrap(),
            label: Some(label.to_owned()),
            valid_ms: None,
            limits: KeyLimits::default(),
        }
    }

    #[tokio::test]
    async fn only_the_hash_of_a_key_is_stored() {
        let store = MemoryStore::new();
        let text = new_text();
        let made = register(&store, &text, key("team-1", "for CI")).await.unwrap();
        assert_eq!(store.keys().await.unwrap(), std::slice::from_ref(&made));
        assert_eq!(made.hash, keyring::hash_of(&text));
        assert!(!format!("{made:?}").contains(text.as_str()));
        assert_eq!((made.scopes.as_str(), made.id.len()), ("read,admin", 4 + ID_CHARS));
        assert_eq!((made.expires_at, made.limits), (None, KeyLimits::OfAccount));
        // The same text a second time is refused.
        assert!(register(&store, &text, key("team-1", "again")).await.is_err());
    }

    #[tokio::test]
    async fn a_key_has_the_end_and_the_limits_that_its_creator_chose() {
        let store = MemoryStore::new();
        let chosen =
            NewKey { valid_ms: Some(5_000), limits: KeyLimits::Unlimited, ..key("team-1", "for CI") };
        let made = register(&store, &new_text(), chosen).await.unwrap();
        assert_eq!(made.expires_at, Some(made.created_at.after(5_000)));
        assert_eq!(store.keys().await.unwrap()[0].limits, KeyLimits::Unlimited);
    }

    #[tokio::test]
    async fn names_that_would_confuse_are_refused() {
        let store = MemoryStore::new();
        for (account, label) in [
            ("", "x"),
            ("a b", "x"),
            ("a\n", "x"),
            (&"a".repeat(65), "x"),
            ("a", "x\n"),
            ("a", &"x".repeat(201)),
        ] {
            assert!(
                register(&store, &new_text(), key(account, label)).await.is_err(),
                "{account:?} {label:?}"
            );
        }
        assert!(store.keys().await.unwrap().is_empty());
    }
}
