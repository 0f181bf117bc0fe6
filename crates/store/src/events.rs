//! Filters and pages of events. Plain data; each store interprets it.

use std::collections::BTreeSet;

use api::{EventKind, SandboxId};
use rules::TimeMs;

use crate::Event;

/// The names of the kinds that clients post.
pub(crate) const POSTED_KINDS: [&str; EventKind::POSTED.len()] = {
    let mut names = [""; EventKind::POSTED.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = EventKind::POSTED[index].as_str();
        index += 1;
    }
    names
};
/// The approximate size of an event apart from its data.
pub(crate) const POSTED_ROW_BYTES: u64 = 512;

/// Selects events of one account that match every given field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub account: String,
    pub sandbox: Option<SandboxId>,
    /// One of these kinds; any if empty.
    pub kinds: BTreeSet<EventKind>,
    /// Not empty.
    pub run: Option<String>,
    /// At or after `since`, and before `until`.
    pub since: Option<TimeMs>,
    pub until: Option<TimeMs>,
}

/// A page of the matching events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventPage {
    /// Only numbers above `after` and below `before`.
    pub after: Option<u64>,
    pub before: Option<u64>,
    pub offset: u64,
    /// Capped at [`crate::MAX_PAGE`].
    pub limit: u32,
    pub order: EventOrder,
}

/// In which order a page lists events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventOrder {
    #[default]
    OldestFirst,
    NewestFirst,
}

/// One page, ordered by number.
#[derive(Debug, Clone, PartialEq)]
pub struct EventListing {
    pub items: Vec<Event>,
    /// The exact number of events that match the filter, on all pages.
    pub total: u64,
    /// Whether more events follow within the page's bounds.
    pub more: bool,
}

/// The events that a follower waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    Account(String),
    Sandbox(SandboxId),
}
