//! Lists of the in-memory store: filters and summaries.

use crate::{EndedSandbox, Filter, SandboxRecord, SandboxSummary};

pub(super) fn matches(filter: &Filter, record: &SandboxRecord) -> bool {
    record.account == filter.account
        && filter.state.is_none_or(|state| state == record.state())
        && filter.image.as_ref().is_none_or(|image| *image == record.config.image)
        && filter.metadata.iter().all(|(key, value)| record.config.metadata.get(key) == Some(value))
}

pub(super) fn summary(record: &SandboxRecord) -> SandboxSummary {
    let end = record.lifecycle.end();
    let ended = |(_, reason): (_, &str)| EndedSandbox {
        metadata: record.config.metadata.clone(),
        reason: reason.to_owned(),
    };
    SandboxSummary {
        id: record.id.clone(),
        state: record.state(),
        image: record.config.image.clone(),
        resources: record.config.resources,
        created_at: record.created_at,
        started_at: record.lifecycle.started_at(),
        paused_at: record.lifecycle.paused_at(),
        terminated_at: end.map(|(at, _)| at),
        ended: end.map(ended),
    }
}
