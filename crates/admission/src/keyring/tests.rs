//! Keys in memory against those of a store.

use rules::TimeMs;
use store::{Batch, MemoryStore, Write};

use super::*;
use crate::captured_log::CapturedLog;

fn text(n: u8) -> KeyText {
    KeyText::format([n; 32])
}

fn record(n: u8, hash: [u8; 32], scopes: &str) -> KeyRecord {
    KeyRecord {
        id: format!("key_{n}"),
        hash,
        account: format!("account-{n}"),
        scopes: scopes.to_owned(),
        name: None,
        prefix_hint: text(n).hint().to_owned(),
        created_at: TimeMs(1),
        revoked_at: None,
        expires_at: None,
        limits: KeyLimits::OfAccount,
    }
}

async fn put(store: &MemoryStore, record: KeyRecord) {
    store.commit(Batch::new().with(Write::PutKey(Box::new(record)))).await.unwrap();
}

#[tokio::test]
async fn a_key_is_found_by_its_whole_text() {
    let store = MemoryStore::new();
    put(&store, record(1, hash_of(&text(1)), "read,write")).await;
    let ring = Keyring::load(&store).await.unwrap();
    let caller = ring.find(text(1).as_str()).unwrap();
    assert_eq!((&*caller.account, &*caller.key_id), ("account-1", "key_1"));
    assert_eq!(caller.scopes, "read,write".parse().unwrap());
    assert!(ring.find(text(2).as_str()).is_none());
    let whole = text(1).as_str().to_owned();
    for other in ["", "sbk_", &whole[..whole.len() - 1], &format!("{whole}0"), &whole.to_uppercase()] {
        assert!(ring.find(other).is_none(), "{other}");
    }
}

#[tokio::test]
async fn the_form_of_e2b_clients_is_the_same_key() {
    let store = MemoryStore::new();
    put(&store, record(1, hash_of(&text(1)), "read")).await;
    let ring = Keyring::load(&store).await.unwrap();
    let shown = text(1).e2b_text();
    assert_eq!(&*ring.find(&shown).unwrap().key_id, "key_1");
    for other in ["e2b_", &text(2).e2b_text(), &shown[..shown.len() - 1], &shown.to_uppercase()] {
        assert_eq!(ring.authenticate(other).unwrap_err(), InvalidKey::Unknown, "{other}");
    }
    // One that was created a moment ago.
    put(&store, record(2, hash_of(&text(2)), "read")).await;
    assert!(ring.refresh_and_find(&text(2).e2b_text(), &store).await);
}

#[tokio::test]
async fn every_byte_of_a_hash_counts() {
    let hash = hash_of(&text(1));
    let store = MemoryStore::new();
    put(&store, record(1, hash, "read")).await;
    // The same start, so that they stand in one place.
    let mut alike = hash;
    alike[31] ^= 1;
    put(&store, record(2, alike, "admin")).await;
    let ring = Keyring::load(&store).await.unwrap();
    assert_eq!(&*ring.find_hash(&hash, now()).unwrap().key_id, "key_1");
    assert_eq!(&*ring.find_hash(&alike, now()).unwrap().key_id, "key_2");
    for byte in 0..32 {
        let mut other = hash;
        other[byte] ^= 0x80;
        assert_eq!(ring.find_hash(&other, now()).unwrap_err(), InvalidKey::Unknown, "byte {byte}");
    }
}

#[tokio::test]
async fn a_refresh_brings_new_keys_and_takes_revoked_ones() {
    let store = MemoryStore::new();
    let ring = Keyring::load(&store).await.unwrap();
    assert!(!ring.refresh(&store).await.unwrap());
    put(&store, record(1, hash_of(&text(1)), "read")).await;
    assert!(ring.find(text(1).as_str()).is_none());
    assert!(ring.refresh(&store).await.unwrap());
    assert!(ring.find(text(1).as_str()).is_some());
    let revoke = Write::RevokeKey { id: "key_1".to_owned(), at: TimeMs(2) };
    store.commit(Batch::new().with(revoke)).await.unwrap();
    assert!(ring.refresh(&store).await.unwrap());
    assert!(ring.find(text(1).as_str()).is_none());
    assert!(Keyring::load(&store).await.unwrap().find(text(1).as_str()).is_none());
}

#[tokio::test]
async fn each_change_of_a_key_is_logged_once_without_its_secret() {
    let store = MemoryStore::new();
    let end = TimeMs(1_767_323_000_000);
    let key = KeyRecord {
        name: Some("for tests".to_owned()),
        expires_at: Some(end),
        ..record(1, hash_of(&text(1)), "read")
    };
    put(&store, record(2, hash_of(&text(2)), "read")).await;
    let ring = Keyring::load(&store).await.unwrap();
    let log = CapturedLog::default();
    let _capture = log.begin();
    put(&store, key).await;
    ring.refresh(&store).await.unwrap();
    ring.refresh(&store).await.unwrap();
    for (since, until) in [(end.before(2), end.before(1)), (end.before(1), end), (end, end.after(1))] {
        ring.log_expired(since, until);
    }
    let revoke = Write::RevokeKey { id: "key_1".to_owned(), at: TimeMs(2) };
    store.commit(Batch::new().with(revoke)).await.unwrap();
    ring.refresh(&store).await.unwrap();
    let lines = log.of_target(&module_path!().replace("::tests", "::changes"));
    let messages: Vec<&str> = lines.iter().map(|line| line["fields"]["message"].as_str().unwrap()).collect();
    assert_eq!(messages, ["an API key was created", "an API key expired", "an API key was revoked"]);
    for line in &lines {
        let fields = &line["fields"];
        assert_eq!((&fields["key_id"], &fields["account"]), (&"key_1".into(), &"account-1".into()), "{line}");
        assert_eq!((&fields["name"], &line["level"]), (&"for tests".into(), &"INFO".into()), "{line}");
    }
    assert!(!log.text().contains(&text(1).as_str()[4..20]));
}

#[tokio::test]
async fn a_store_that_fails_takes_no_key_away() {
    let store = MemoryStore::new();
    put(&store, record(1, hash_of(&text(1)), "read")).await;
    let ring = Keyring::load(&store).await.unwrap();
    store.close().await;
    assert!(ring.refresh(&store).await.is_err());
    assert!(ring.find(text(1).as_str()).is_some());
}

#[tokio::test]
async fn a_key_with_scopes_of_another_version_is_left_out() {
    let store = MemoryStore::new();
    put(&store, record(1, hash_of(&text(1)), "read,teleport")).await;
    put(&store, record(2, hash_of(&text(2)), "read")).await;
    let ring = Keyring::load(&store).await.unwrap();
    assert!(ring.find(text(1).as_str()).is_none());
    assert!(ring.find(text(2).as_str()).is_some());
}

#[tokio::test]
async fn an_expired_key_is_told_from_an_unknown_one() {
    let store = MemoryStore::new();
    let at = TimeMs(1_767_323_000_000);
    put(&store, KeyRecord { expires_at: Some(at), ..record(1, hash_of(&text(1)), "read") }).await;
    let later = Some(now().after(3_600_000));
    put(&store, KeyRecord { expires_at: later, ..record(2, hash_of(&text(2)), "read") }).await;
    let ring = Keyring::load(&store).await.unwrap();
    let whole = text(1);
    assert!(ring.authenticate_at(whole.as_str(), at.before(1)).is_ok());
    let expired = ring.authenticate_at(whole.as_str(), at).unwrap_err();
    assert_eq!(expired, InvalidKey::Expired { at });
    assert!(expired.to_string().starts_with("the API key expired at 2026-01-02T03:03:20.000Z"), "{expired}");
    // Long requests end with the key, and tokens that were made for it.
    assert_eq!((ring.has("key_1"), ring.has("key_2"), ring.has("key_3")), (false, true, false));
    assert_eq!((ring.end_of("key_1"), ring.end_of("key_2"), ring.end_of("key_3")), (Some(at), later, None));
    assert!(ring.of_account("account-1").is_empty());
    assert_eq!(ring.of_account("account-2").len(), 1);
    let valid: Vec<Arc<str>> = vec!["account-2".into()];
    assert_eq!(ring.accounts(), valid);
    assert!(!ring.refresh_and_find(whole.as_str(), &store).await);
}

#[tokio::test]
async fn a_caller_has_the_limits_of_its_key() {
    let store = MemoryStore::new();
    let limits = KeyLimits::Unlimited;
    put(&store, KeyRecord { limits, ..record(1, hash_of(&text(1)), "read") }).await;
    let ring = Keyring::load(&store).await.unwrap();
    assert_eq!(ring.find(text(1).as_str()).unwrap().limits, limits);
    assert_eq!(ring.of_id("key_1").unwrap().limits, limits);
}

#[tokio::test]
async fn the_log_names_keys_that_ended() {
    let store = MemoryStore::new();
    put(&store, KeyRecord { revoked_at: Some(TimeMs(2)), ..record(1, hash_of(&text(1)), "read") }).await;
    put(&store, KeyRecord { expires_at: Some(TimeMs(2)), ..record(2, hash_of(&text(2)), "read") }).await;
    put(&store, record(3, hash_of(&text(3)), "read")).await;
    let ring = Keyring::load(&store).await.unwrap();
    let ended = |key_id: &str, end| Some(EndedKey { key_id: key_id.into(), end });
    assert_eq!(ring.ended(text(1).as_str()), ended("key_1", KeyEnd::Revoked));
    assert_eq!(ring.ended(&text(1).e2b_text()), ended("key_1", KeyEnd::Revoked));
    assert_eq!(ring.ended(text(2).as_str()), ended("key_2", KeyEnd::Expired));
    for other in [text(3).as_str(), text(4).as_str(), "", "sbk_"] {
        assert_eq!(ring.ended(other), None);
    }
    // The message for the sender does not tell a revoked key from a mistyped one.
    assert_eq!(ring.authenticate(text(1).as_str()).unwrap_err(), InvalidKey::Unknown);
}
