//! Records of templates.

use api::{SnapshotId, TemplateId, TemplateState};
use rules::TimeMs;

/// A template, or the build of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRecord {
    pub id: TemplateId,
    pub account: String,
    pub name: String,
    /// Counts the builds of a name.
    pub version: u32,
    pub state: TemplateState,
    pub created_at: TimeMs,
    pub finished_at: Option<TimeMs>,
    /// The snapshots of its steps. The last one is the result.
    pub snapshots: Vec<SnapshotId>,
    /// What the builder needs to know, as JSON. The store does not read it.
    pub content: String,
}

impl TemplateRecord {
    /// Whether it can be stored, or why not.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let times = [Some(self.created_at), self.finished_at].into_iter().flatten();
        if times.into_iter().any(|time| i64::try_from(time.0).is_err()) {
            return Err("its time exceeds 63 bits");
        }
        Ok(())
    }
}
