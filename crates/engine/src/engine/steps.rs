//! What builds of templates need of the engine: snapshots of the results of steps, found by what the steps did, and the count of
//! interruptions.

use std::sync::Arc;

use api::SnapshotId;
use rules::{RepeatableWork, TimeMs};
use store::{Batch, SnapshotRecord};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::record::interruptions::WorkInProgress;
use crate::sandbox::SandboxHandle;
use crate::snapshots::take;
use crate::template::Template;

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

    /// The snapshot of a step that did the same upon the same.
    pub fn find_step(&self, account: &str, build_key: &str) -> Option<Arc<SnapshotRecord>> {
        self.services.snapshots.find_step(account, build_key)
    }

    /// A snapshot of a step of a build, or of another one.
    pub fn step(&self, account: &str, id: &SnapshotId) -> Result<Arc<SnapshotRecord>, EngineError> {
        self.services.snapshots.find_any(account, id)
    }

    /// What sandboxes above the result of a step begin with.
    pub fn step_template(&self, account: &str, id: &SnapshotId) -> Result<Template, EngineError> {
        self.services.snapshots.template_of_any(account, id)
    }

    /// The snapshots of the steps of an account's builds.
    pub fn steps_of(&self, account: &str) -> Vec<Arc<SnapshotRecord>> {
        self.services.snapshots.steps(account)
    }

    /// Commits a batch and deletes snapshots of steps with it.
    pub async fn commit_without_steps(&self, batch: Batch, steps: &[SnapshotId]) -> Result<(), EngineError> {
        let batch = steps.iter().fold(batch, |batch, id| batch.delete_snapshot(id.clone()));
        self.services.stamped_store.commit(batch).await?;
        for id in steps {
            self.services.snapshots.remove(id);
        }
        Ok(())
    }

    /// The time that records get.
    pub fn now(&self) -> TimeMs {
        self.services.stamped_store.now()
    }
}

impl SandboxHandle<'_> {
    /// Takes a snapshot of the result of a step.
    pub async fn snapshot_step(
        self,
        build_key: String,
        memory: bool,
    ) -> Result<Arc<SnapshotRecord>, EngineError> {
        let actor = self.actor().await?;
        let services = Arc::clone(self.services);
        let taking = async move { take::take_of_step(&services.taking(), &actor, build_key, memory).await };
        self.run_to_completion(taking).await
    }
}
