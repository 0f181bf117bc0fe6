//! Lists of events, and appended events.
#![expect(clippy::unwrap_used, reason = "a suite of tests")]

use std::sync::Arc;

use api::EventKind;
use rules::TimeMs;

use super::{event, id, record};
use crate::{Batch, EventFilter, EventOrder, EventPage, NewEvent, Store, StoreError, Topic, Write};

type Fresh = Arc<dyn Store>;

const HOUR: u64 = 3_600_000;
const PAGE: EventPage =
    EventPage { after: None, before: None, offset: 0, limit: 100, order: EventOrder::OldestFirst };

fn of(account: &str) -> EventFilter {
    EventFilter { account: account.to_owned(), ..EventFilter::default() }
}

fn kinds(kinds: &[EventKind]) -> EventFilter {
    EventFilter { kinds: kinds.iter().copied().collect(), ..of("acme") }
}

fn in_run(event: NewEvent, run: &str) -> NewEvent {
    NewEvent { run: run.to_owned(), ..event }
}

/// Adds events, numbered from 1: sandbox, kind, run and hour.
async fn fill(store: &Fresh) {
    for (number, kind, run, hour) in [
        (1, EventKind::SandboxCreated, "", 0),
        (1, EventKind::ExecStarted, "run-a", 1),
        (1, EventKind::ExecCompleted, "run-a", 1),
        (2, EventKind::SandboxCreated, "", 2),
        (2, EventKind::ExecCompleted, "run-b", 9),
        (1, EventKind::ExecCompleted, "run-b", 3),
        (1, EventKind::SandboxTerminated, "", 3),
    ] {
        let event = in_run(event(number, kind, TimeMs(hour * HOUR + 10)), run);
        store.commit(Batch::new().event(event)).await.unwrap();
    }
    let other = NewEvent { account: "umbrella".to_owned(), ..event(3, EventKind::SandboxCreated, TimeMs(5)) };
    store.commit(Batch::new().event(in_run(other, "run-a"))).await.unwrap();
}

async fn found(store: &Fresh, filter: &EventFilter, page: EventPage) -> (Vec<u64>, u64, bool) {
    let listing = store.list_events(filter, page).await.unwrap();
    (listing.items.iter().map(|event| event.sequence).collect(), listing.total, listing.more)
}

pub(super) async fn every_filter_and_its_total(store: Fresh) {
    fill(&store).await;
    let run = |run: &str| EventFilter { run: Some(run.to_owned()), ..of("acme") };
    let sandbox = |number| EventFilter { sandbox: Some(id(number)), ..of("acme") };
    let since = |ms| EventFilter { since: Some(TimeMs(ms)), ..of("acme") };
    let until = |ms| EventFilter { until: Some(TimeMs(ms)), ..of("acme") };
    for (filter, expected) in [
        (of("acme"), vec![1, 2, 3, 4, 5, 6, 7]),
        (of("umbrella"), vec![8]),
        (of("nobody"), vec![]),
        (kinds(&[EventKind::SandboxCreated]), vec![1, 4]),
        (kinds(&[EventKind::SandboxCreated, EventKind::ExecStarted, EventKind::PortClosed]), vec![1, 2, 4]),
        (sandbox(1), vec![1, 2, 3, 6, 7]),
        (sandbox(3), vec![]),
        (EventFilter { sandbox: Some(id(3)), ..of("umbrella") }, vec![8]),
        (
            EventFilter {
                sandbox: Some(id(1)),
                ..kinds(&[EventKind::ExecCompleted, EventKind::ExecStarted])
            },
            vec![2, 3, 6],
        ),
        (run("run-a"), vec![2, 3]),
        (run("run-b"), vec![5, 6]),
        (run("run"), vec![]),
        (EventFilter { sandbox: Some(id(2)), ..run("run-b") }, vec![5]),
        (EventFilter { run: Some("run-a".to_owned()), ..kinds(&[EventKind::ExecCompleted]) }, vec![3]),
        (since(0), vec![1, 2, 3, 4, 5, 6, 7]),
        (since(HOUR), vec![2, 3, 4, 5, 6, 7]),
        (since(HOUR + 10), vec![2, 3, 4, 5, 6, 7]),
        (since(HOUR + 11), vec![4, 5, 6, 7]),
        (since(9 * HOUR + 10), vec![5]),
        (since(9 * HOUR + 11), vec![]),
        (since(u64::MAX), vec![]),
        (until(0), vec![]),
        (until(10), vec![]),
        (until(11), vec![1]),
        (until(3 * HOUR + 10), vec![1, 2, 3, 4]),
        (until(u64::MAX), vec![1, 2, 3, 4, 5, 6, 7]),
        (EventFilter { until: Some(TimeMs(3 * HOUR + 11)), ..since(2 * HOUR) }, vec![4, 6, 7]),
        (EventFilter { until: Some(TimeMs(HOUR + 11)), ..since(HOUR + 5) }, vec![2, 3]),
        (EventFilter { until: Some(TimeMs(5)), ..since(HOUR) }, vec![]),
        (EventFilter { since: Some(TimeMs(3 * HOUR)), ..kinds(&[EventKind::ExecCompleted]) }, vec![5, 6]),
        (EventFilter { since: Some(TimeMs(2 * HOUR)), ..run("run-b") }, vec![5, 6]),
        (EventFilter { until: Some(TimeMs(3 * HOUR)), ..sandbox(1) }, vec![1, 2, 3]),
    ] {
        let total = expected.len() as u64;
        assert_eq!(found(&store, &filter, PAGE).await, (expected.clone(), total, false), "{filter:?}");
        let newest = EventPage { order: EventOrder::NewestFirst, ..PAGE };
        let reversed: Vec<u64> = expected.iter().rev().copied().collect();
        assert_eq!(found(&store, &filter, newest).await, (reversed, total, false), "{filter:?}");
        let (items, upto) = store.events_after(&filter, 0, 100).await.unwrap();
        assert_eq!(items.iter().map(|event| event.sequence).collect::<Vec<_>>(), expected, "{filter:?}");
        assert_eq!(upto, 8);
    }
}

pub(super) async fn pages_and_bounds(store: Fresh) {
    fill(&store).await;
    let filter = kinds(&[EventKind::ExecCompleted, EventKind::SandboxCreated]);
    let page = EventPage { limit: 2, ..PAGE };
    let newest = EventPage { order: EventOrder::NewestFirst, ..page };
    // All matching events are 1, 3, 4, 5, 6.
    for (page, items, more) in [
        (page, vec![1, 3], true),
        (EventPage { offset: 2, ..page }, vec![4, 5], true),
        (EventPage { offset: 3, ..page }, vec![5, 6], false),
        (EventPage { offset: 9, ..page }, vec![], false),
        (EventPage { offset: u64::MAX, ..page }, vec![], false),
        (EventPage { after: Some(0), ..page }, vec![1, 3], true),
        (EventPage { after: Some(4), ..page }, vec![5, 6], false),
        (EventPage { after: Some(3), offset: 1, ..page }, vec![5, 6], false),
        (EventPage { after: Some(u64::MAX), ..page }, vec![], false),
        (EventPage { before: Some(4), ..page }, vec![1, 3], false),
        (EventPage { before: Some(0), ..page }, vec![], false),
        (EventPage { after: Some(1), before: Some(6), ..page }, vec![3, 4], true),
        (newest, vec![6, 5], true),
        (EventPage { before: Some(5), ..newest }, vec![4, 3], true),
        (EventPage { before: Some(4), ..newest }, vec![3, 1], false),
        (EventPage { limit: 0, ..page }, vec![], true),
    ] {
        assert_eq!(found(&store, &filter, page).await, (items, 5, more), "{page:?}");
    }
    let (items, upto) = store.events_after(&filter, 1, 2).await.unwrap();
    assert_eq!((items.len(), upto), (2, 4));
    assert_eq!(store.events_after(&filter, 6, 2).await.unwrap(), (vec![], 8));
    assert_eq!(store.events_after(&filter, 99, 2).await.unwrap(), (vec![], 99));
    assert_eq!(store.last_event().await.unwrap(), 8);
}

pub(super) async fn totals_follow_removals(store: Fresh) {
    store.put(record(1)).await.unwrap();
    fill(&store).await;
    // Events of sandboxes without a record are removed by their time.
    store.purge(TimeMs(9 * HOUR)).await.unwrap();
    assert_eq!(found(&store, &of("acme"), PAGE).await.1, 6);
    assert_eq!(found(&store, &of("umbrella"), PAGE).await, (vec![], 0, false));
    assert_eq!(found(&store, &kinds(&[EventKind::SandboxCreated]), PAGE).await, (vec![1], 1, false));
    store.put(super::terminated(&record(1), TimeMs(1))).await.unwrap();
    // More than one part of a purge removes.
    for _ in 0..11 {
        let batch = (0..100).fold(Batch::new(), |batch, _| {
            batch.event(in_run(event(1, EventKind::ExecCompleted, TimeMs(2)), "run-a"))
        });
        store.commit(batch).await.unwrap();
    }
    let run = EventFilter { run: Some("run-a".to_owned()), ..of("acme") };
    assert_eq!(found(&store, &run, PAGE).await.1, 1102);
    assert_eq!(store.purge(TimeMs(2)).await.unwrap(), 1);
    assert_eq!(found(&store, &run, PAGE).await, (vec![], 0, false));
    assert_eq!(found(&store, &of("acme"), PAGE).await, (vec![5], 1, false));
    assert!(store.last_event().await.unwrap() >= 1108);
}

/// An appended event is ordered before later commits.
pub(super) async fn appended_events_keep_their_order(store: Fresh) {
    let mut number = 0;
    for round in 0..20 {
        for _ in 0..round {
            store.append(in_run(event(1, EventKind::ExecCompleted, TimeMs(number)), "run-a")).unwrap();
            number += 1;
        }
        let sequences = store
            .commit(Batch::new().event(event(2, EventKind::SandboxPaused, TimeMs(number))))
            .await
            .unwrap();
        number += 1;
        assert_eq!(sequences.event_sequences, [number], "round {round}");
    }
    let listing = store.list_events(&of("acme"), EventPage { limit: 1000, ..PAGE }).await.unwrap();
    let times: Vec<u64> = listing.items.iter().map(|event| event.at.0).collect();
    assert_eq!(times, (0..number).collect::<Vec<_>>());
    let appended = listing.items.iter().find(|event| event.kind == "exec.completed").unwrap();
    let expected = event(1, EventKind::ExecCompleted, TimeMs(0));
    assert_eq!((&appended.data, appended.run.as_str(), &appended.sandbox), (&expected.data, "run-a", &id(1)));
    let late = event(1, EventKind::ExecCompleted, TimeMs(u64::MAX));
    assert!(matches!(store.append(late), Err(StoreError::BadRecord { .. })));
    store.close().await;
    assert_eq!(store.append(event(1, EventKind::ExecCompleted, TimeMs(1))), Err(StoreError::Closed));
}

/// Followers are woken by events of their topic, appended ones included, and can read them.
pub(super) async fn followers_are_woken(store: Fresh) {
    let mut account = store.follow(Topic::Account("acme".to_owned()));
    let mut one = store.follow(Topic::Sandbox(id(1)));
    let two = store.follow(Topic::Sandbox(id(2)));
    store.append(event(1, EventKind::ExecCompleted, TimeMs(1))).unwrap();
    account.changed().await.unwrap();
    one.changed().await.unwrap();
    assert_eq!(store.events_after(&of("acme"), 0, 10).await.unwrap().1, 1);
    assert!(!two.has_changed().unwrap());
    store.commit(Batch::new().event(event(2, EventKind::SandboxPaused, TimeMs(1)))).await.unwrap();
    assert!(account.has_changed().unwrap() && two.has_changed().unwrap() && !one.has_changed().unwrap());
}

/// Duplicates are dropped, appended or committed, in any order; other events of the batch are stored.
pub(super) async fn events_with_the_same_once_are_deduplicated(store: Fresh) {
    let once = |number: u64, once: &str| NewEvent {
        once: Some(once.to_owned()),
        ..event(1, EventKind::ExecCompleted, TimeMs(number))
    };
    store.append(once(1, "a")).unwrap();
    store.append(once(2, "a")).unwrap();
    store.append(once(3, "b")).unwrap();
    let batch = Batch::new().event(once(4, "b")).event(event(1, EventKind::SandboxPaused, TimeMs(5)));
    let numbers = store.commit(batch.event(once(6, "c")).event(once(7, "c"))).await.unwrap().event_sequences;
    assert!(numbers[0] < numbers[1] && numbers[1] < numbers[2] && numbers[2] == numbers[3], "{numbers:?}");
    store.append(once(8, "c")).unwrap();
    store.append(event(1, EventKind::SandboxResumed, TimeMs(9))).unwrap();
    // Moves the appended lines.
    store.commit(Batch::new()).await.unwrap();
    let times = async || {
        let listing = store.list_events(&of("acme"), PAGE).await.unwrap();
        assert_eq!(listing.total, listing.items.len() as u64);
        listing.items.iter().map(|event| event.at.0).collect::<Vec<_>>()
    };
    assert_eq!(times().await, [1, 3, 5, 6, 9]);
    // A reverted batch leaves no event behind.
    store.put(record(1)).await.unwrap();
    let refused = Batch::new().event(once(10, "d")).put(record(1));
    assert!(matches!(store.commit(refused).await, Err(StoreError::Stale { .. })));
    store.commit(Batch::new().event(once(11, "d"))).await.unwrap();
    assert_eq!(times().await, [1, 3, 5, 6, 9, 11]);
}

/// Only posted events of the account above its quota are evicted.
pub(super) async fn the_oldest_posted_events_are_evicted(store: Fresh) {
    let sized = |account: &str, kind: EventKind, at: u64| NewEvent {
        account: account.to_owned(),
        data: serde_json::Value::String("x".repeat(486)),
        ..event(1, kind, TimeMs(at))
    };
    // Each counts a thousand bytes.
    let keep =
        |batch: Batch, most_bytes| batch.with(Write::KeepPosted { account: "acme".to_owned(), most_bytes });
    let times = async |account: &str| {
        let listing = store.list_events(&of(account), EventPage { limit: 1000, ..PAGE }).await.unwrap();
        assert_eq!(listing.total, listing.items.len() as u64);
        listing.items.iter().map(|event| event.at.0).collect::<Vec<_>>()
    };
    let kinds =
        [EventKind::AgentThinking, EventKind::CostLlm, EventKind::ExecCompleted, EventKind::AgentError];
    let batch = (0..8).fold(Batch::new(), |batch, n| batch.event(sized("acme", kinds[n as usize % 4], n)));
    let batch = batch.event(sized("other", EventKind::AgentThinking, 100));
    store.commit(keep(batch, 6000)).await.unwrap();
    assert_eq!(times("acme").await, [0, 1, 2, 3, 4, 5, 6, 7]);
    store.commit(keep(Batch::new().event(sized("acme", EventKind::AgentToolCall, 8)), 6000)).await.unwrap();
    assert_eq!(times("acme").await, [1, 2, 3, 4, 5, 6, 7, 8]);
    store.commit(keep(Batch::new().event(sized("acme", EventKind::AgentToolResult, 9)), 4999)).await.unwrap();
    assert_eq!(times("acme").await, [2, 5, 6, 7, 8, 9]);
    // A reverted batch evicts nothing.
    store.put(record(1)).await.unwrap();
    assert!(store.commit(keep(Batch::new(), 0).put(record(1))).await.is_err());
    assert_eq!(times("acme").await, [2, 5, 6, 7, 8, 9]);
    // Events that are removed with a sandbox no longer count.
    store.put(super::terminated(&record(1), TimeMs(1))).await.unwrap();
    store.purge(TimeMs(2)).await.unwrap();
    assert!(times("acme").await.is_empty() && times("other").await.is_empty());
    let batch = (0..5).fold(Batch::new(), |batch, n| batch.event(sized("acme", EventKind::CostLlm, n)));
    store.commit(keep(batch, 5000)).await.unwrap();
    assert_eq!(times("acme").await, [0, 1, 2, 3, 4]);
    store.commit(keep(Batch::new(), 0)).await.unwrap();
    assert!(times("acme").await.is_empty());
}
