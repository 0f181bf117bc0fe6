//! Counters of builds, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use api::TemplateState;

use crate::template::Template;

/// Written by builds, read for each scrape of the metrics.
#[derive(Debug, Default)]
pub struct Counters {
    ready: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    steps_run: AtomicU64,
    steps_cached: AtomicU64,
}

/// How often something happened since the builder was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildCounts {
    /// Builds by their end.
    pub ready: u64,
    pub failed: u64,
    pub cancelled: u64,
    /// Steps of these builds that ran, and those that the cache had.
    pub steps_run: u64,
    pub steps_cached: u64,
}

impl Counters {
    /// Counts the end of a build.
    pub fn finished(&self, template: &Template) {
        let by_end = match template.state {
            TemplateState::Ready => &self.ready,
            TemplateState::Cancelled => &self.cancelled,
            _ => &self.failed,
        };
        by_end.fetch_add(1, Ordering::Relaxed);
        let steps = template.content.steps;
        self.steps_cached.fetch_add(steps.cached.into(), Ordering::Relaxed);
        self.steps_run.fetch_add(steps.done.saturating_sub(steps.cached).into(), Ordering::Relaxed);
    }

    /// The numbers at this moment.
    pub fn read(&self) -> BuildCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BuildCounts {
            ready: get(&self.ready),
            failed: get(&self.failed),
            cancelled: get(&self.cancelled),
            steps_run: get(&self.steps_run),
            steps_cached: get(&self.steps_cached),
        }
    }
}
