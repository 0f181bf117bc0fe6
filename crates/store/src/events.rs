//! Which events a reader wants, and what it gets. Plain data; each store reads it in its own way.

use std::collections::BTreeSet;

use api::SandboxId;
use rules::TimeMs;

use crate::Event;

/// What clients post, as `rules::is_posted` has it.
pub(crate) const POSTED_KINDS: [&str; 5] =
    ["agent.thinking", "agent.tool_call", "agent.tool_result", "agent.error", "cost.llm"];
/// What an event takes beside its data, about.
pub(crate) const POSTED_ROW_BYTES: u64 = 512;

/// Events of one account that fit everything given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub account: String,
    pub sandbox: Option<SandboxId>,
    /// One of these; any where there are none.
    pub kinds: BTreeSet<String>,
    /// Never empty.
    pub run: Option<String>,
    /// From this time on, and before that one.
    pub since: Option<TimeMs>,
    pub until: Option<TimeMs>,
}

/// Which part of the events is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventPage {
    /// Only numbers above the one and below the other.
    pub after: Option<u64>,
    pub before: Option<u64>,
    pub offset: u64,
    /// At most [`crate::MAX_PAGE`] are read, whatever this says.
    pub limit: u32,
    pub order: EventOrder,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventOrder {
    #[default]
    OldestFirst,
    NewestFirst,
}

/// One page, in the order of the numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct EventListing {
    pub items: Vec<Event>,
    /// All that fit the filter, exactly, wherever the page begins.
    pub total: u64,
    /// Whether the page's bounds leave more after it.
    pub more: bool,
}

/// Whose events somebody waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    Account(String),
    Sandbox(SandboxId),
}

#[cfg(test)]
mod tests {
    use api::EventKind;

    use super::*;

    #[test]
    fn posted_kinds_are_those_of_the_rules() {
        for kind in EventKind::ALL {
            assert_eq!(POSTED_KINDS.contains(&kind.as_str()), rules::is_posted(*kind), "{kind}");
        }
    }
}
