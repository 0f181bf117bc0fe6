//! Events of the in-memory store, by linear search.

use std::collections::BTreeMap;

use crate::events::{POSTED_KINDS, POSTED_ROW_BYTES};
use crate::{
    Event, EventFilter, EventListing, EventOrder, EventPage, IdempotencyRecord, MAX_PAGE, StoredBytes,
};

/// Sequences of events by their `once`, for deduplication.
#[derive(Debug, Default)]
pub(super) struct OnceIndex(BTreeMap<String, u64>);

impl OnceIndex {
    pub(super) fn find(&self, once: Option<&String>) -> Option<u64> {
        self.0.get(once?).copied()
    }

    pub(super) fn add(&mut self, once: Option<String>, sequence: u64) {
        self.0.extend(once.map(|once| (once, sequence)));
    }

    /// Removes the entries of events that were removed.
    pub(super) fn keep(&mut self, events: &[Event]) {
        let exists = |sequence: &u64| events.binary_search_by_key(sequence, |event| event.sequence).is_ok();
        self.0.retain(|_, sequence| exists(sequence));
    }
}

/// Evicts the oldest posted events of an account while they exceed the quota.
pub(super) fn evict_posted(events: &mut Vec<Event>, account: &str, most_bytes: u64) {
    let is_posted = |event: &Event| event.account == account && POSTED_KINDS.contains(&event.kind.as_str());
    let size = |event: &Event| POSTED_ROW_BYTES + event.data.to_string().len() as u64;
    let mut left: u64 = events.iter().filter(|event| is_posted(event)).map(size).sum();
    events.retain(|event| {
        let goes = left > most_bytes && is_posted(event);
        left -= if goes { size(event) } else { 0 };
        !goes
    });
}

/// Bytes of an account's records and events.
pub(super) fn stored_bytes<'a>(
    events: &[Event],
    records: impl Iterator<Item = &'a IdempotencyRecord>,
    account: &str,
) -> StoredBytes {
    let mut bytes = StoredBytes::default();
    for record in records.filter(|record| record.account == account) {
        bytes.idempotency += POSTED_ROW_BYTES + record.content.len() as u64;
    }
    for event in events.iter().filter(|event| event.account == account) {
        let size = POSTED_ROW_BYTES + event.data.to_string().len() as u64;
        match POSTED_KINDS.contains(&event.kind.as_str()) {
            true => bytes.posted_events += size,
            false => bytes.events += size,
        }
    }
    bytes
}

pub(super) fn list(events: &[Event], filter: &EventFilter, page: EventPage) -> EventListing {
    let fitting: Vec<&Event> = events.iter().filter(|event| matches(filter, event)).collect();
    let total = fitting.len() as u64;
    let mut within: Vec<&Event> = fitting
        .into_iter()
        .filter(|event| page.after.is_none_or(|after| event.sequence > after))
        .filter(|event| page.before.is_none_or(|before| event.sequence < before))
        .collect();
    if page.order == EventOrder::NewestFirst {
        within.reverse();
    }
    let limit = page.limit.min(MAX_PAGE) as usize;
    let offset = usize::try_from(page.offset).unwrap_or(usize::MAX);
    let more = within.len() > offset.saturating_add(limit);
    let items = within.into_iter().skip(offset).take(limit).cloned().collect();
    EventListing { items, total, more }
}

pub(super) fn after(
    events: &[Event],
    filter: &EventFilter,
    after: u64,
    limit: u32,
    last: u64,
) -> (Vec<Event>, u64) {
    let page = EventPage { after: Some(after), limit, ..EventPage::default() };
    let EventListing { items, more, .. } = list(events, filter, page);
    let upto = if more { items.last().map_or(after, |event| event.sequence) } else { last.max(after) };
    (items, upto)
}

fn matches(filter: &EventFilter, event: &Event) -> bool {
    event.account == filter.account
        && filter.sandbox.as_ref().is_none_or(|sandbox| *sandbox == event.sandbox)
        && (filter.kinds.is_empty() || filter.kinds.iter().any(|kind| kind.as_str() == event.kind))
        && filter.run.as_ref().is_none_or(|run| *run == event.run)
        && filter.since.is_none_or(|since| event.at >= since)
        && filter.until.is_none_or(|until| event.at < until)
}
