//! The conformance suite of stores. A store's tests call [`all`] with a function that creates an empty store.
//!
//! Each case gets an empty store, and panics if the store violates the contract.

mod begun_work;
mod commits;
mod events;
mod keys;
mod lists;
mod ports;
mod purges;
mod snapshots;
mod templates;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{EventKind, Isolation, NetworkPolicy, Resources, SandboxConfig, SandboxId};
use rules::{KeyLimits, Lifecycle, TimeMs};
use serde_json::json;

use crate::{Filter, IdempotencyRecord, KeyRecord, NewEvent, PageRange, SandboxRecord, Store};

/// Runs every case.
pub async fn all<S: Store>(fresh: impl Fn() -> S) {
    let make = || -> Arc<dyn Store> { Arc::new(fresh()) };
    commits::a_stored_record_reads_back(make()).await;
    commits::each_state_and_option_reads_back(make()).await;
    ports::exposed_ports_follow_the_record(make()).await;
    commits::a_newer_revision_replaces_and_an_older_is_refused(make()).await;
    commits::living_sandboxes_have_different_slots(make()).await;
    commits::a_batch_is_all_or_nothing(make()).await;
    commits::writes_of_a_batch_take_effect_in_order(make()).await;
    commits::bad_records_and_batches_are_refused(make()).await;
    commits::a_refused_commit_does_not_affect_others(make()).await;
    commits::concurrent_commits_are_all_stored(make()).await;
    commits::events_are_numbered_in_order(make()).await;
    commits::calls_of_a_closed_store_fail(make()).await;
    lists::lists_are_newest_first(make()).await;
    lists::pages_are_parts_of_the_list(make()).await;
    lists::every_filter_and_its_total(make()).await;
    lists::metadata_filters_follow_the_record(make()).await;
    lists::texts_are_compared_exactly(make()).await;
    lists::totals_follow_every_change(make()).await;
    events::every_filter_and_its_total(make()).await;
    events::pages_and_bounds(make()).await;
    events::totals_follow_removals(make()).await;
    events::appended_events_keep_their_order(make()).await;
    events::followers_are_woken(make()).await;
    events::events_with_the_same_once_are_deduplicated(make()).await;
    events::the_oldest_posted_events_are_evicted(make()).await;
    purges::only_sandboxes_terminated_before_are_purged(make()).await;
    purges::one_call_purges_many(make()).await;
    purges::events_without_a_sandbox_are_purged_by_their_time(make()).await;
    purges::the_oldest_records_of_an_account_beyond_its_share_are_purged(make()).await;
    keys::keys_are_listed_oldest_first(make()).await;
    keys::a_key_is_unique(make()).await;
    keys::a_revocation_is_permanent(make()).await;
    keys::the_version_grows_with_changes_of_keys_only(make()).await;
    keys::an_idempotency_record_reads_back(make()).await;
    keys::an_idempotency_record_is_stored_once_with_its_batch(make()).await;
    keys::one_of_ten_concurrent_records_is_stored(make()).await;
    keys::an_expired_record_is_replaced(make()).await;
    keys::expired_records_are_purged(make()).await;
    keys::invalid_keys_and_records_are_refused(make()).await;
    snapshots::snapshots_read_back_and_are_deleted(make()).await;
    snapshots::a_batch_with_a_snapshot_is_all_or_nothing(make()).await;
    templates::templates_read_back_change_and_are_deleted(make()).await;
    begun_work::begun_work_reads_back_and_is_removed(make()).await;
}

/// A running sandbox, different for each number.
pub fn record(number: u32) -> SandboxRecord {
    let created_at = TimeMs(1_700_000_000_000 + u64::from(number) * 1_000);
    SandboxRecord {
        id: id(number),
        account: "acme".to_owned(),
        lifecycle: Lifecycle::started(created_at.after(30)),
        config: SandboxConfig {
            image: "ubuntu:24.04".to_owned(),
            resources: Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 },
            env: BTreeMap::new(),
            workdir: "/workspace".to_owned(),
            timeout_ms: 300_000,
            idle_timeout_ms: 120_000,
            on_timeout: api::OnTimeout::Terminate,
            processes_at_timeout: api::ProcessesAtTimeout::Kept,
            auto_resume: true,
            metadata: BTreeMap::new(),
            network: NetworkPolicy::default(),
            isolation: Isolation::Gvisor,
            default_user: false,
            extensions: BTreeMap::new(),
        },
        slot: number,
        image_digest: format!("sha256:{number:064}"),
        layers: vec!["sha256:aa".to_owned(), "sha256:bb".to_owned()],
        image_env: vec!["PATH=/bin".to_owned()],
        created_at,
        lifetime_ms: 300_000,
        revision: 1,
        ports: Vec::new(),
    }
}

pub fn id(number: u32) -> SandboxId {
    #[expect(clippy::expect_used, reason = "eight digits or more are always an id")]
    format!("sb_{number:010}").parse().expect("an id")
}

/// The record as its next revision, terminated.
pub fn terminated(record: &SandboxRecord, at: TimeMs) -> SandboxRecord {
    let lifecycle = record.lifecycle.terminated(at, "deleted");
    SandboxRecord { lifecycle, revision: record.revision + 1, ..record.clone() }
}

pub fn event(number: u32, kind: EventKind, at: TimeMs) -> NewEvent {
    let data = json!({ "text": "a\"b\\c\n\u{0}€", "number": number, "list": [1, null, true] });
    NewEvent {
        sandbox: id(number),
        account: "acme".to_owned(),
        run: String::new(),
        at,
        kind,
        data,
        once: None,
    }
}

/// A key, different for each number.
pub fn key(number: u32) -> KeyRecord {
    let mut hash = [7; 32];
    hash[..4].copy_from_slice(&number.to_be_bytes());
    KeyRecord {
        id: format!("key_{number:012}"),
        hash,
        account: "acme".to_owned(),
        scopes: "read,execute".to_owned(),
        name: Some(format!("number {number}")),
        prefix_hint: "sbk_abcd".to_owned(),
        created_at: TimeMs(1_700_000_000_000 + u64::from(number)),
        revoked_at: None,
        expires_at: None,
        limits: KeyLimits::default(),
    }
}

/// An idempotency record, different for each number.
pub fn idempotency_record(number: u32) -> IdempotencyRecord {
    let created_at = TimeMs(1_700_000_000_000);
    IdempotencyRecord {
        account: "acme".to_owned(),
        endpoint: "POST /v1/sandboxes".to_owned(),
        key: format!("request-{number}"),
        request_hash: [3; 32],
        status: 201,
        content: format!("{{\"number\":{number}}}").into_bytes(),
        created_at,
        expires_at: created_at.after(24 * 3_600_000),
    }
}

fn all_of(account: &str) -> Filter {
    Filter { account: account.to_owned(), ..Filter::default() }
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const PAGE: PageRange = PageRange { limit: 100, offset: 0 };

/// The numbers in the ids of a page, and the total.
#[expect(clippy::expect_used, reason = "a suite of tests")]
async fn listed(store: &Arc<dyn Store>, filter: &Filter, page: PageRange) -> (Vec<u32>, u64) {
    let listing = store.list(filter, page).await.expect("a list");
    let numbers = listing.items.iter().map(|item| item.id.as_str()[3..].parse().expect("a number"));
    (numbers.collect(), listing.total)
}
