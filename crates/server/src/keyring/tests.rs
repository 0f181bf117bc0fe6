//! Keys in memory against those of a store.

use rules::TimeMs;
use store::{Batch, MemoryStore, Write};

use super::*;

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
async fn every_byte_of_a_hash_counts() {
    let hash = hash_of(&text(1));
    let store = MemoryStore::new();
    put(&store, record(1, hash, "read")).await;
    // The same start, so that they stand in one place.
    let mut alike = hash;
    alike[31] ^= 1;
    put(&store, record(2, alike, "admin")).await;
    let ring = Keyring::load(&store).await.unwrap();
    assert_eq!(&*ring.find_hash(&hash).unwrap().key_id, "key_1");
    assert_eq!(&*ring.find_hash(&alike).unwrap().key_id, "key_2");
    for byte in 0..32 {
        let mut other = hash;
        other[byte] ^= 0x80;
        assert!(ring.find_hash(&other).is_none(), "byte {byte}");
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
