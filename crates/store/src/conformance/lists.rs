//! Lists: order, pages, filters, totals.
#![expect(clippy::unwrap_used, reason = "a suite of tests")]

use std::sync::Arc;

use api::SandboxState;
use rules::{Lifecycle, PausedProcesses, TimeMs};

use super::{PAGE, all_of, id, listed, pairs, record, terminated};
use crate::{Batch, EndedSandbox, Filter, PageRange, SandboxRecord, Store};

type Fresh = Arc<dyn Store>;

pub(super) async fn lists_are_newest_first(store: Fresh) {
    for (number, created_at) in [(5, 20), (3, 30), (4, 10), (1, 20), (2, 20)] {
        store.put(SandboxRecord { created_at: TimeMs(created_at), ..record(number) }).await.unwrap();
    }
    // A later write of a record does not move it.
    store.put(SandboxRecord { created_at: TimeMs(20), revision: 2, ..record(5) }).await.unwrap();
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![3, 2, 1, 5, 4], 5));
    let mut named = SandboxRecord { created_at: TimeMs(40), ..record(6) };
    named.config.metadata = pairs(&[(api::NAME_KEY, "web"), ("name", "other")]);
    let nameless = SandboxRecord { created_at: TimeMs(50), ..record(7) };
    for live in [&named, &nameless] {
        store.put(live.clone()).await.unwrap();
    }
    let ended = async || {
        let items = store.list(&all_of("acme"), PAGE).await.unwrap().items;
        [items[0].ended.clone(), items[1].ended.clone()]
    };
    assert_eq!(ended().await, [None, None], "only terminated sandboxes are listed with their metadata");
    for live in [&named, &nameless] {
        store.put(terminated(live, TimeMs(60))).await.unwrap();
    }
    let expected = [&nameless, &named].map(|live| {
        let record = terminated(live, TimeMs(60));
        let reason = record.lifecycle.end().unwrap().1.to_owned();
        Some(EndedSandbox { metadata: record.config.metadata, reason })
    });
    assert_eq!(ended().await, expected);
}

pub(super) async fn pages_are_parts_of_the_list(store: Fresh) {
    let batch = (0..25).fold(Batch::new(), |batch, number| {
        let mut record = record(number);
        record.config.metadata = pairs(&[("team", "red")]);
        batch.put(record)
    });
    store.commit(batch).await.unwrap();
    let whole: Vec<u32> = (0..25).rev().collect();
    let tagged = Filter { metadata: pairs(&[("team", "red")]), ..all_of("acme") };
    for filter in [all_of("acme"), tagged] {
        for (limit, offset) in [(10, 0), (10, 10), (10, 20), (1, 24), (5, 25), (5, 1000), (0, 0), (100, 3)] {
            let part: Vec<u32> = whole.iter().copied().skip(offset).take(limit).collect();
            let page = PageRange { limit: limit as u32, offset: offset as u64 };
            assert_eq!(listed(&store, &filter, page).await, (part, 25), "{limit} {offset}");
        }
        assert_eq!(listed(&store, &filter, PageRange { limit: 5, offset: u64::MAX }).await, (vec![], 25));
    }
}

/// All combinations of four filters give the same result as a naive scan of the records.
pub(super) async fn every_filter_and_its_total(store: Fresh) {
    let mut records = Vec::new();
    for number in 0..96 {
        let mut record = record(number);
        record.account = ["acme", "other"][(number % 2) as usize].to_owned();
        record.config.image = ["node:22", "custom"][(number / 2 % 2) as usize].to_owned();
        let user = (number / 4 % 3).to_string();
        record.config.metadata = pairs(&[("userId", &user), ("team", ["a", "b"][(number % 5 % 2) as usize])]);
        match number / 12 % 4 {
            0 => record.lifecycle = Lifecycle::Creating,
            1 => {}
            2 => record.lifecycle = record.lifecycle.paused(TimeMs(9), PausedProcesses::Frozen),
            _ => record = SandboxRecord { revision: 1, ..terminated(&record, TimeMs(9)) },
        }
        records.push(record);
    }
    let batch = records.iter().cloned().fold(Batch::new(), Batch::put);
    store.commit(batch).await.unwrap();
    let states =
        [SandboxState::Creating, SandboxState::Running, SandboxState::Paused, SandboxState::Terminated];
    let metadata = [
        pairs(&[]),
        pairs(&[("userId", "1")]),
        pairs(&[("userId", "1"), ("team", "b")]),
        pairs(&[("userId", "b")]),
        pairs(&[("nothing", "1")]),
    ];
    for account in ["acme", "other", "nobody", ""] {
        for state in states.map(Some).into_iter().chain([None]) {
            for image in [None, Some("node:22"), Some("custom"), Some("ubuntu:24.04")] {
                for metadata in &metadata {
                    let image = image.map(str::to_owned);
                    let filter = Filter { account: account.into(), state, image, metadata: metadata.clone() };
                    let expected = naive_list(&records, &filter);
                    let total = expected.len() as u64;
                    assert_eq!(listed(&store, &filter, PAGE).await, (expected, total), "{filter:?}");
                }
            }
        }
    }
}

fn naive_list(records: &[SandboxRecord], filter: &Filter) -> Vec<u32> {
    let mut fitting = Vec::new();
    for (number, record) in (0..).zip(records) {
        let state = filter.state.is_none_or(|state| record.state() == state);
        let image = filter.image.as_ref().is_none_or(|image| record.config.image == *image);
        let metadata =
            filter.metadata.iter().all(|pair| record.config.metadata.iter().any(|own| own == pair));
        if record.account == filter.account && state && image && metadata {
            fitting.insert(0, number);
        }
    }
    fitting
}

pub(super) async fn metadata_filters_follow_the_record(store: Fresh) {
    let with = |metadata: &[(&str, &str)], revision| {
        let mut record = SandboxRecord { revision, ..record(1) };
        record.config.metadata = pairs(metadata);
        record
    };
    let tagged = |key: &str, value: &str| Filter { metadata: pairs(&[(key, value)]), ..all_of("acme") };
    store.put(with(&[("a", "1"), ("b", "1")], 1)).await.unwrap();
    store.put(with(&[("a", "2"), ("b", "1")], 2)).await.unwrap();
    for (filter, fits) in [(tagged("a", "1"), false), (tagged("a", "2"), true), (tagged("b", "1"), true)] {
        assert_eq!(listed(&store, &filter, PAGE).await.1, u64::from(fits), "{filter:?}");
    }
    // The index of pairs contains account and time.
    let moved = SandboxRecord { account: "other".into(), created_at: TimeMs(4), ..with(&[("a", "2")], 3) };
    store.put(moved).await.unwrap();
    assert_eq!(listed(&store, &tagged("a", "2"), PAGE).await.1, 0);
    let theirs = Filter { account: "other".into(), ..tagged("a", "2") };
    assert_eq!(listed(&store, &theirs, PAGE).await, (vec![1], 1));
    store.commit(Batch::new().delete(id(1))).await.unwrap();
    assert_eq!(listed(&store, &theirs, PAGE).await, (vec![], 0));
    store.put(with(&[("a", "9")], 1)).await.unwrap();
    assert_eq!(listed(&store, &theirs, PAGE).await, (vec![], 0));
    assert_eq!(listed(&store, &tagged("a", "9"), PAGE).await, (vec![1], 1));
}

pub(super) async fn texts_are_compared_exactly(store: Fresh) {
    let values = ["x", "X", "x ", "x\u{0}", "x\u{0}y", "", "%", "1", "01", "' OR 1=1 --", "ä", "a\u{308}"];
    for (number, value) in (0..).zip(values) {
        let mut record = record(number);
        record.config.metadata = pairs(&[("key", value), (value, "value")]);
        record.config.image = value.to_owned();
        store.put(record).await.unwrap();
    }
    for (number, value) in (0..).zip(values) {
        for metadata in [pairs(&[("key", value)]), pairs(&[(value, "value")])] {
            let filter = Filter { metadata, ..all_of("acme") };
            assert_eq!(listed(&store, &filter, PAGE).await, (vec![number], 1), "{value:?}");
        }
        let filter = Filter { image: Some(value.to_owned()), ..all_of("acme") };
        assert_eq!(listed(&store, &filter, PAGE).await, (vec![number], 1), "{value:?}");
    }
}

pub(super) async fn totals_follow_every_change(store: Fresh) {
    let of = |state| Filter { state: Some(state), ..all_of("acme") };
    let totals = async |store: &Fresh| {
        let mut totals = [0; 3];
        for (total, filter) in
            totals.iter_mut().zip([all_of("acme"), of(SandboxState::Running), of(SandboxState::Terminated)])
        {
            *total = listed(store, &filter, PAGE).await.1;
        }
        totals
    };
    for number in 0..3 {
        store.put(record(number)).await.unwrap();
    }
    assert_eq!(totals(&store).await, [3, 3, 0]);
    for number in 0..2 {
        store.put(terminated(&record(number), TimeMs(9))).await.unwrap();
    }
    assert_eq!(totals(&store).await, [3, 1, 2]);
    let mut rebuilt = SandboxRecord { revision: 2, ..record(2) };
    rebuilt.config.image = "custom".to_owned();
    store.put(rebuilt).await.unwrap();
    assert_eq!(totals(&store).await, [3, 1, 2]);
    let custom = Filter { image: Some("custom".into()), ..all_of("acme") };
    assert_eq!(listed(&store, &custom, PAGE).await, (vec![2], 1));
    store.commit(Batch::new().delete(id(2)).delete(id(0))).await.unwrap();
    assert_eq!(totals(&store).await, [1, 0, 1]);
    store.purge(TimeMs(10)).await.unwrap();
    assert_eq!(totals(&store).await, [0, 0, 0]);
}
