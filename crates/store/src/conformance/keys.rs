//! Keys and idempotency records.
#![expect(clippy::unwrap_used, reason = "a suite of tests")]

use std::sync::Arc;

use api::EventKind;
use rules::{KeyLimits, TimeMs};
use tokio::task::JoinSet;

use super::{event, id, idempotency_record, key, record};
use crate::{Batch, IdempotencyRecord, KeyRecord, SandboxRecord, Store, StoreError, Write};

type Fresh = Arc<dyn Store>;

fn put(key: &KeyRecord) -> Batch {
    Batch::new().with(Write::PutKey(Box::new(key.clone())))
}

fn revoke(number: u32, at: u64) -> Batch {
    Batch::new().with(Write::RevokeKey { id: key(number).id, at: TimeMs(at) })
}

async fn stored_record(store: &Fresh, number: u32) -> Option<IdempotencyRecord> {
    let record = idempotency_record(number);
    store.idempotency_record(&record.account, &record.endpoint, &record.key).await.unwrap()
}

pub(super) async fn keys_are_listed_oldest_first(store: Fresh) {
    assert_eq!(store.keys().await.unwrap(), []);
    let full = KeyRecord {
        name: Some("näme '\"\n\u{0}".to_owned()),
        revoked_at: Some(TimeMs(9)),
        created_at: TimeMs(i64::MAX as u64),
        expires_at: Some(TimeMs(i64::MAX as u64)),
        limits: KeyLimits::Unlimited,
        hash: [0; 32],
        ..key(1)
    };
    let limits = KeyLimits::from_stored(Some(u32::MAX));
    let plain = KeyRecord { name: None, hash: [255; 32], limits, ..key(2) };
    for key in [&full, &plain] {
        store.commit(put(key)).await.unwrap();
    }
    let together = KeyRecord { hash: [1; 32], created_at: plain.created_at, ..key(0) };
    store.commit(put(&together)).await.unwrap();
    assert_eq!(store.keys().await.unwrap(), [together, plain, full]);
}

pub(super) async fn a_key_is_unique(store: Fresh) {
    store.commit(put(&key(1))).await.unwrap();
    let version = store.keys_version().await.unwrap();
    let same_id = KeyRecord { hash: key(2).hash, ..key(1) };
    let same_hash = KeyRecord { hash: key(1).hash, ..key(2) };
    for taken in [key(1), same_id, same_hash] {
        // With another write before it: no write of the batch is applied.
        let refused = store.commit(put(&key(3)).with(Write::PutKey(Box::new(taken.clone())))).await;
        assert_eq!(refused, Err(StoreError::KeyTaken { id: taken.id }));
    }
    assert_eq!(store.keys().await.unwrap(), [key(1)]);
    assert_eq!(store.keys_version().await.unwrap(), version);
}

pub(super) async fn a_revocation_is_permanent(store: Fresh) {
    store.commit(put(&key(1))).await.unwrap();
    store.commit(put(&key(2))).await.unwrap();
    store.commit(revoke(1, 50)).await.unwrap();
    let version = store.keys_version().await.unwrap();
    store.commit(revoke(1, 70)).await.unwrap();
    let revoked = KeyRecord { revoked_at: Some(TimeMs(50)), ..key(1) };
    assert_eq!(store.keys().await.unwrap(), [revoked.clone(), key(2)]);
    assert_eq!(store.keys_version().await.unwrap(), version);
    let unknown = store.commit(revoke(2, 5).with(Write::RevokeKey { id: key(3).id, at: TimeMs(5) })).await;
    assert_eq!(unknown, Err(StoreError::NoSuchKey { id: key(3).id }));
    assert_eq!(store.keys().await.unwrap(), [revoked.clone(), key(2)]);
    assert_eq!(store.keys_version().await.unwrap(), version);
    // The same text cannot be added with another id.
    let again = store.commit(put(&KeyRecord { hash: key(1).hash, ..key(4) })).await;
    assert_eq!(again, Err(StoreError::KeyTaken { id: key(4).id }));
}

pub(super) async fn the_version_grows_with_changes_of_keys_only(store: Fresh) {
    let mut last = store.keys_version().await.unwrap();
    for batch in [put(&key(1)), put(&key(2)), revoke(1, 5), put(&key(3)), revoke(3, 5)] {
        store.commit(batch).await.unwrap();
        let version = store.keys_version().await.unwrap();
        assert!(version > last, "{version} after {last}");
        last = version;
    }
    store
        .commit(Batch::new().put(record(1)).event(event(1, EventKind::SandboxCreated, TimeMs(1))))
        .await
        .unwrap();
    store.commit(Batch::new().idempotency_record(idempotency_record(1))).await.unwrap();
    store.purge(TimeMs(u64::MAX)).await.unwrap();
    store.purge_idempotency_records(TimeMs(u64::MAX)).await.unwrap();
    assert_eq!(store.keys_version().await.unwrap(), last);
    assert_eq!(store.keys().await.unwrap().len(), 3);
}

pub(super) async fn an_idempotency_record_reads_back(store: Fresh) {
    let all_bytes: Vec<u8> = (0..=255).collect();
    let large = IdempotencyRecord { content: all_bytes.repeat(20_000), status: 599, ..idempotency_record(1) };
    let empty = IdempotencyRecord {
        content: Vec::new(),
        status: 100,
        request_hash: [0; 32],
        ..idempotency_record(2)
    };
    store
        .commit(Batch::new().idempotency_record(large.clone()).idempotency_record(empty.clone()))
        .await
        .unwrap();
    assert!(stored_record(&store, 1).await.as_ref() == Some(&large), "5 MB are not printed");
    assert_eq!(stored_record(&store, 2).await, Some(empty));
    assert_eq!(stored_record(&store, 3).await, None);
    // All three are part of the key scope, and compared exactly.
    let IdempotencyRecord { account, endpoint, key, .. } = idempotency_record(1);
    for (account, endpoint, key) in [
        ("other", &*endpoint, &*key),
        (&*account, "POST /v1/other", &*key),
        (&*account, &*endpoint, &*key.to_uppercase()),
        (&*account, &*endpoint, ""),
        (&*key, &*endpoint, &*account),
    ] {
        assert_eq!(store.idempotency_record(account, endpoint, key).await.unwrap(), None);
    }
}

pub(super) async fn an_idempotency_record_is_stored_once_with_its_batch(store: Fresh) {
    store.commit(Batch::new().put(record(1)).idempotency_record(idempotency_record(1))).await.unwrap();
    let second = IdempotencyRecord {
        status: 500,
        created_at: idempotency_record(1).expires_at.before(1),
        ..idempotency_record(1)
    };
    let second = IdempotencyRecord { expires_at: second.created_at.after(100), ..second };
    let batch = Batch::new()
        .put(record(2))
        .event(event(2, EventKind::SandboxCreated, TimeMs(1)))
        .idempotency_record(second);
    let IdempotencyRecord { endpoint, key, .. } = idempotency_record(1);
    assert_eq!(store.commit(batch).await, Err(StoreError::AlreadyRecorded { endpoint, key }));
    assert_eq!(store.living().await.unwrap(), [record(1)]);
    assert_eq!(store.events(&id(2), 0, 9).await.unwrap(), []);
    assert_eq!(stored_record(&store, 1).await, Some(idempotency_record(1)));
    // A refused sandbox record reverts the idempotency record of its batch.
    let taken = SandboxRecord { slot: 1, ..record(3) };
    let refused = store.commit(Batch::new().idempotency_record(idempotency_record(3)).put(taken)).await;
    assert!(matches!(refused, Err(StoreError::SlotTaken { .. })), "{refused:?}");
    assert_eq!(stored_record(&store, 3).await, None);
}

pub(super) async fn one_of_ten_concurrent_records_is_stored(store: Fresh) {
    let mut tasks = JoinSet::new();
    for number in 0..10 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let own = IdempotencyRecord { content: vec![number as u8], ..idempotency_record(1) };
            store
                .commit(Batch::new().put(record(number)).idempotency_record(own))
                .await
                .is_ok()
                .then_some(number)
        });
    }
    let kept_by: Vec<u32> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(kept_by.len(), 1);
    assert_eq!(store.living().await.unwrap(), [record(kept_by[0])]);
    assert_eq!(stored_record(&store, 1).await.unwrap().content, [kept_by[0] as u8]);
}

pub(super) async fn an_expired_record_is_replaced(store: Fresh) {
    store.commit(Batch::new().idempotency_record(idempotency_record(1))).await.unwrap();
    let over = idempotency_record(1).expires_at;
    assert!(idempotency_record(1).is_expired(over) && !idempotency_record(1).is_expired(over.before(1)));
    let next = IdempotencyRecord {
        created_at: over,
        expires_at: over.after(5),
        request_hash: [9; 32],
        content: b"next".to_vec(),
        ..idempotency_record(1)
    };
    store.commit(Batch::new().idempotency_record(next.clone())).await.unwrap();
    assert_eq!(stored_record(&store, 1).await, Some(next));
}

pub(super) async fn expired_records_are_purged(store: Fresh) {
    for part in 0..6u32 {
        let batch = (part * 200..part * 200 + 200).fold(Batch::new(), |batch, number| {
            batch.idempotency_record(IdempotencyRecord {
                expires_at: TimeMs(100 + u64::from(number)),
                ..early(number)
            })
        });
        store.commit(batch).await.unwrap();
    }
    for number in 2000..2004 {
        let large =
            IdempotencyRecord { content: vec![7; 5_000_000], expires_at: TimeMs(50), ..early(number) };
        store.commit(Batch::new().idempotency_record(large)).await.unwrap();
    }
    store.commit(Batch::new().put(record(1)).with(Write::PutKey(Box::new(key(1))))).await.unwrap();
    assert_eq!(store.purge_idempotency_records(TimeMs(49)).await.unwrap(), 0);
    assert_eq!(store.purge_idempotency_records(TimeMs(1200)).await.unwrap(), 4 + 1101);
    for (number, there) in [(0, false), (1100, false), (1101, true), (1199, true), (2003, false)] {
        assert_eq!(stored_record(&store, number).await.is_some(), there, "{number}");
    }
    assert_eq!(store.purge_idempotency_records(TimeMs(u64::MAX)).await.unwrap(), 99);
    assert_eq!(store.living().await.unwrap(), [record(1)]);
    assert_eq!(store.keys().await.unwrap(), [key(1)]);
}

fn early(number: u32) -> IdempotencyRecord {
    IdempotencyRecord { created_at: TimeMs(1), ..idempotency_record(number) }
}

pub(super) async fn invalid_keys_and_records_are_refused(store: Fresh) {
    let long = "x".repeat(256);
    let too_large = vec![0; crate::MAX_RESPONSE + 1];
    let keys = [
        KeyRecord { id: long.clone(), ..key(1) },
        KeyRecord { id: String::new(), ..key(1) },
        KeyRecord { account: String::new(), ..key(1) },
        KeyRecord { scopes: long.clone(), ..key(1) },
        KeyRecord { name: Some(long.clone()), ..key(1) },
        KeyRecord { prefix_hint: long.clone(), ..key(1) },
        KeyRecord { created_at: TimeMs(u64::MAX), ..key(1) },
        KeyRecord { revoked_at: Some(TimeMs(u64::MAX)), ..key(1) },
        KeyRecord { expires_at: Some(TimeMs(u64::MAX)), ..key(1) },
    ];
    let records = [
        IdempotencyRecord { account: long.clone(), ..idempotency_record(1) },
        IdempotencyRecord { endpoint: long.clone(), ..idempotency_record(1) },
        IdempotencyRecord { key: long, ..idempotency_record(1) },
        IdempotencyRecord { status: 99, ..idempotency_record(1) },
        IdempotencyRecord { status: 600, ..idempotency_record(1) },
        IdempotencyRecord { expires_at: idempotency_record(1).created_at, ..idempotency_record(1) },
        IdempotencyRecord { expires_at: TimeMs(u64::MAX), ..idempotency_record(1) },
        IdempotencyRecord { content: too_large, ..idempotency_record(1) },
    ];
    let keys = keys.map(|key| Write::PutKey(Box::new(key)));
    let records = records.map(|record| Write::PutIdempotencyRecord(Box::new(record)));
    let late = Write::RevokeKey { id: key(1).id, at: TimeMs(u64::MAX) };
    for (number, write) in keys.into_iter().chain(records).chain([late]).enumerate() {
        let refused = store.commit(Batch::new().put(record(1)).with(write)).await;
        assert!(matches!(refused, Err(StoreError::BadRow { .. })), "{number}: {refused:?}");
    }
    assert_eq!((store.living().await.unwrap(), store.keys().await.unwrap()), (vec![], vec![]));
    assert_eq!(stored_record(&store, 1).await, None);
}
