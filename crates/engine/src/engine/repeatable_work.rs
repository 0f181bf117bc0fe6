//! Interruptions of work that clients of the engine do, and that the next daemon begins again.

use rules::RepeatableWork;

use super::Engine;
use crate::error::EngineError;
use crate::record::interruptions::WorkInProgress;

impl Engine {
    /// Counts the start of work that has no sandbox. Fails if it was interrupted too often.
    pub async fn begin_work(
        &self,
        kind: RepeatableWork,
        subject: &str,
    ) -> Result<WorkInProgress, EngineError> {
        self.services.interruptions.begin(kind, subject, None).await
    }

    /// How many daemons have ended during this work.
    pub fn interruptions(&self, kind: RepeatableWork, subject: &str) -> u32 {
        self.services.interruptions.count(kind, subject)
    }

    /// Forgets interruptions of work of a kind that is over.
    pub async fn forget_work_unless(&self, kind: RepeatableWork, continues: impl Fn(&str) -> bool) {
        let keeps = |other: RepeatableWork, subject: &str| other != kind || continues(subject);
        self.services.interruptions.forget_unless(keeps).await;
    }
}
