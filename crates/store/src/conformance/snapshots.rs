//! Cases about snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{Isolation, Resources};
use rules::{PausedProcesses, TimeMs};

use super::record;
use crate::{Batch, SnapshotRecord, SnapshotVisibility, Store, StoreError};

fn snapshot(number: u32) -> SnapshotRecord {
    #[expect(clippy::expect_used, reason = "letters and digits are an id")]
    let id = format!("snap_conformance{number}").parse().expect("an id");
    SnapshotRecord {
        id,
        account: "acme".to_owned(),
        sandbox: record(number).id,
        name: number.is_multiple_of(2).then(|| format!("name \"{number}\"")),
        image: "ubuntu:24.04".to_owned(),
        image_digest: "sha256:1".to_owned(),
        image_env: vec!["PATH=/bin".to_owned()],
        workdir: number.is_multiple_of(2).then(|| "/srv/app".to_owned()),
        isolation: if number.is_multiple_of(2) { Isolation::Container } else { Isolation::Gvisor },
        layers: vec![format!("/snapshots/{number}.img"), "/layers/1".to_owned()],
        resources: Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 },
        memory: number % 2 == 1,
        bytes: u64::from(number) << 32,
        metadata: BTreeMap::from([("key".to_owned(), "value".to_owned())]),
        created_at: TimeMs(1_700_000_000_000 - u64::from(number)),
        visibility: match number.is_multiple_of(3) {
            true => SnapshotVisibility::Internal { origin_key: format!("key {number}") },
            false => SnapshotVisibility::Account,
        },
    }
}

pub async fn snapshots_read_back_and_are_deleted(store: Arc<dyn Store>) {
    assert_eq!(store.snapshots().await, Ok(Vec::new()));
    for number in 1..=3 {
        assert!(store.commit(Batch::new().put_snapshot(snapshot(number))).await.is_ok());
    }
    // Oldest first.
    assert_eq!(store.snapshots().await, Ok(vec![snapshot(3), snapshot(2), snapshot(1)]));
    let deletion = Batch::new().delete_snapshot(snapshot(2).id).delete_snapshot(snapshot(9).id);
    assert!(store.commit(deletion).await.is_ok());
    assert_eq!(store.snapshots().await, Ok(vec![snapshot(3), snapshot(1)]));
    let too_large = SnapshotRecord { bytes: u64::MAX, ..snapshot(4) };
    let refused = store.commit(Batch::new().put_snapshot(too_large)).await;
    assert!(matches!(refused, Err(StoreError::BadRow { what: "a snapshot", .. })), "{refused:?}");
}

pub async fn a_batch_with_a_snapshot_is_all_or_nothing(store: Arc<dyn Store>) {
    assert!(store.put(record(1)).await.is_ok());
    // The record is not newer than the stored one.
    let batch = Batch::new().put_snapshot(snapshot(1)).put(record(1));
    assert!(store.commit(batch).await.is_err());
    assert_eq!(store.snapshots().await, Ok(Vec::new()));
    let mut prepared = record(1);
    prepared.revision += 1;
    prepared.lifecycle = prepared.lifecycle.rolled_back(TimeMs(9), PausedProcesses::Frozen);
    assert!(store.put(prepared.clone()).await.is_ok());
    assert_eq!(store.get(&prepared.id).await, Ok(Some(prepared)));
}
