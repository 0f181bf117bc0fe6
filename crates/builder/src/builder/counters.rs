//! Counters of builds, for metrics.

use std::sync::Mutex;

use api::TemplateState;
use base::IgnorePoison;

use crate::template::Template;

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

/// Written by builds, read for each scrape of the metrics.
#[derive(Debug, Default)]
pub struct Counters(Mutex<BuildCounts>);

impl Counters {
    /// Counts the end of a build.
    pub fn finished(&self, template: &Template) {
        let mut counts = self.0.lock().ignore_poison();
        let by_end = match template.state {
            TemplateState::Ready => &mut counts.ready,
            TemplateState::Cancelled => &mut counts.cancelled,
            _ => &mut counts.failed,
        };
        *by_end += 1;
        let steps = template.content.steps;
        counts.steps_cached += u64::from(steps.cached);
        counts.steps_run += u64::from(steps.done.saturating_sub(steps.cached));
    }

    /// The numbers at this moment.
    pub fn read(&self) -> BuildCounts {
        *self.0.lock().ignore_poison()
    }
}

#[cfg(test)]
mod tests {
    use api::TemplateSteps;

    use super::*;
    use crate::template::tests::template;

    #[test]
    fn builds_are_counted_by_their_end_and_steps_by_where_they_are_from() {
        let counters = Counters::default();
        let steps = TemplateSteps { total: 5, done: 4, cached: 1 };
        for state in
            [TemplateState::Ready, TemplateState::Ready, TemplateState::Failed, TemplateState::Cancelled]
        {
            let mut ended = template(1, 1, state);
            ended.content.steps = steps;
            counters.finished(&ended);
        }
        let expected = BuildCounts { ready: 2, failed: 1, cancelled: 1, steps_run: 12, steps_cached: 4 };
        assert_eq!(counters.read(), expected);
    }
}
