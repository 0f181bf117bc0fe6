//! What every store does, as one suite. A store's tests call [`all`] with a way to make an empty one.
//!
//! Each case gets a fresh store and panics where the store is wrong, with the case's name in the panic's place.

mod commits;
mod lists;
mod purges;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{NetworkPolicy, Resources, SandboxConfig, SandboxId, SandboxState};
use rules::{Accounting, TimeMs};
use serde_json::json;

use crate::{Filter, NewEvent, Page, SandboxRecord, Store};

/// Runs every case.
pub async fn all<S: Store>(fresh: impl Fn() -> S) {
    let make = || -> Arc<dyn Store> { Arc::new(fresh()) };
    commits::what_is_put_is_read_back(make()).await;
    commits::every_state_and_option_comes_back(make()).await;
    commits::a_newer_revision_replaces_and_an_older_is_refused(make()).await;
    commits::living_sandboxes_have_slots_of_their_own(make()).await;
    commits::a_batch_is_all_or_nothing(make()).await;
    commits::writes_of_a_batch_take_effect_in_order(make()).await;
    commits::bad_records_and_batches_are_refused(make()).await;
    commits::one_refused_commit_does_not_disturb_the_others(make()).await;
    commits::commits_of_many_tasks_all_stay(make()).await;
    commits::events_are_numbered_and_come_in_order(make()).await;
    commits::a_closed_store_says_so(make()).await;
    lists::newest_first_and_the_later_of_two_first(make()).await;
    lists::pages_are_parts_of_the_whole(make()).await;
    lists::every_filter_and_its_total(make()).await;
    lists::metadata_filters_follow_the_record(make()).await;
    lists::texts_are_compared_exactly(make()).await;
    lists::totals_follow_every_change(make()).await;
    purges::only_what_was_terminated_before_goes(make()).await;
    purges::many_go_in_one_call(make()).await;
    purges::events_without_a_sandbox_go_by_their_time(make()).await;
}

/// A running sandbox, different for each number.
pub fn record(number: u32) -> SandboxRecord {
    let created_at = TimeMs(1_700_000_000_000 + u64::from(number) * 1_000);
    let mut accounting = Accounting::default();
    accounting.started(created_at);
    SandboxRecord {
        id: id(number),
        account: "acme".to_owned(),
        state: SandboxState::Running,
        config: SandboxConfig {
            image: "ubuntu:24.04".to_owned(),
            resources: Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 },
            env: BTreeMap::new(),
            workdir: "/workspace".to_owned(),
            timeout_ms: 300_000,
            idle_timeout_ms: 120_000,
            metadata: BTreeMap::new(),
            network: NetworkPolicy::default(),
        },
        slot: number,
        image_digest: format!("sha256:{number:064}"),
        layers: vec!["sha256:aa".to_owned(), "sha256:bb".to_owned()],
        image_env: vec!["PATH=/bin".to_owned()],
        created_at,
        started_at: Some(created_at.after(30)),
        paused_at: None,
        terminated_at: None,
        reason: None,
        accounting,
        revision: 1,
        note: None,
    }
}

pub fn id(number: u32) -> SandboxId {
    #[expect(clippy::expect_used, reason = "eight digits or more are always an id")]
    format!("sb_{number:010}").parse().expect("an id")
}

/// The record as its next revision, terminated.
pub fn terminated(record: &SandboxRecord, at: TimeMs) -> SandboxRecord {
    let mut next = SandboxRecord {
        state: SandboxState::Terminated,
        terminated_at: Some(at),
        reason: Some("deleted".to_owned()),
        revision: record.revision + 1,
        ..record.clone()
    };
    next.accounting.terminated(at);
    next
}

pub fn event(number: u32, kind: &str, at: TimeMs) -> NewEvent {
    let data = json!({ "text": "a\"b\\c\n\u{0}€", "number": number, "list": [1, null, true] });
    NewEvent { sandbox: id(number), account: "acme".to_owned(), at, kind: kind.to_owned(), data }
}

fn all_of(account: &str) -> Filter {
    Filter { account: account.to_owned(), ..Filter::default() }
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

const PAGE: Page = Page { limit: 100, offset: 0 };

/// The numbers in the ids of a page, and the total.
#[expect(clippy::expect_used, reason = "a suite of tests")]
async fn listed(store: &Arc<dyn Store>, filter: &Filter, page: Page) -> (Vec<u32>, u64) {
    let listing = store.list(filter, page).await.expect("a list");
    let numbers = listing.items.iter().map(|item| item.id.as_str()[3..].parse().expect("a number"));
    (numbers.collect(), listing.total)
}
