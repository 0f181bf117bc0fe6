//! A template: its record, and what the builder knows of it.

pub mod files;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::{SandboxConfig, SnapshotId, TemplateError, TemplateId, TemplateState, TemplateSteps};
use dockerfile::{BuildArgs, ImageSettings};
use engine::PendingIdempotencyRecord;
use rules::TimeMs;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use store::TemplateRecord;

use crate::context::spool::StoredContext;

/// The tag of versions that were built without one.
pub const DEFAULT_TAG: &str = "default";

/// The idempotency record of a create.
pub type PendingTemplate = PendingIdempotencyRecord<Template>;

/// A checked request for a build.
#[derive(Debug, Clone)]
pub struct NewTemplate {
    /// A new random one by default.
    pub id: Option<TemplateId>,
    pub name: String,
    /// Other names for this version. Without any it is [`DEFAULT_TAG`].
    pub tags: Vec<String>,
    pub dockerfile: String,
    pub args: BuildArgs,
    pub start: Option<StartCommand>,
    /// Of the sandboxes in which the steps run. Its timeout is that of the build.
    pub config: SandboxConfig,
    pub no_cache: bool,
    pub metadata: BTreeMap<String, String>,
    pub context: Option<StoredContext>,
    pub others: OtherBuilds,
}

/// What becomes of builds in progress that have the name and a tag of a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OtherBuilds {
    /// They go on.
    #[default]
    Kept,
    /// They are cancelled. If one of them does the same as the new build, that is refused instead.
    Replaced,
}

impl NewTemplate {
    /// The tags of the version.
    pub(crate) fn all_tags(&self) -> Vec<String> {
        if self.tags.is_empty() { vec![DEFAULT_TAG.to_owned()] } else { self.tags.clone() }
    }

    /// Two builds with the same digest do the same.
    pub(crate) fn digest(&self) -> String {
        let Self { dockerfile, args, start, config, no_cache, metadata, context, .. } = self;
        let context = context.as_ref().map(|context| context.digest);
        // Text, numbers and maps with text as keys can always be written.
        let request = serde_json::to_vec(&(dockerfile, args, start, config, no_cache, metadata, context));
        Sha256::digest(request.unwrap_or_default()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A command that runs in every sandbox from the template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartCommand {
    pub command: String,
    /// Succeeds when the command is ready.
    pub ready: Option<String>,
    pub timeout_ms: u64,
    /// A build waits this long instead of checking. A create does not, because the sandbox of the build has shown that it works.
    #[serde(default)]
    pub settles_ms: Option<u64>,
}

impl StartCommand {
    /// Whether it may end with the exit code 0 before it is ready.
    pub const fn may_end(&self) -> bool {
        self.ready.is_some() || self.settles_ms.is_some()
    }
}

/// A template, or the build of one. Never changes: a change is a new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub id: TemplateId,
    pub account: String,
    pub name: String,
    pub version: u32,
    pub state: TemplateState,
    pub created_at: TimeMs,
    pub finished_at: Option<TimeMs>,
    /// Of its steps. The last one is the result.
    pub snapshots: Vec<SnapshotId>,
    pub content: TemplateContent,
}

/// The part of a template's record that only the builder reads. Additions need defaults: records are older than the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateContent {
    pub dockerfile: String,
    pub args: BuildArgs,
    pub start: Option<StartCommand>,
    pub config: SandboxConfig,
    pub no_cache: bool,
    pub metadata: BTreeMap<String, String>,
    pub has_context: bool,
    /// Of the context, as long as the build is not over.
    #[serde(default)]
    pub context_bytes: u64,
    pub base: String,
    #[serde(default)]
    pub steps: TemplateSteps,
    #[serde(default)]
    pub size_bytes: u64,
    /// Of the result.
    #[serde(default)]
    pub settings: ImageSettings,
    /// Whether the result has the processes of the start command.
    #[serde(default)]
    pub memory: bool,
    #[serde(default)]
    pub error: Option<TemplateError>,
    /// Other names for this version: `NAME:TAG`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// The digest of the request, by which an identical one is found while the build is in progress. Absent in records of earlier
    /// versions.
    #[serde(default)]
    pub request: Option<String>,
}

impl Template {
    pub(crate) fn new(
        id: TemplateId,
        account: &str,
        version: u32,
        base: String,
        new: &NewTemplate,
        now: TimeMs,
    ) -> Self {
        let NewTemplate { name, dockerfile, args, start, config, no_cache, metadata, context, .. } = new;
        Self {
            id,
            account: account.to_owned(),
            name: name.clone(),
            version,
            state: TemplateState::Queued,
            created_at: now,
            finished_at: None,
            snapshots: Vec::new(),
            content: TemplateContent {
                dockerfile: dockerfile.clone(),
                args: args.clone(),
                start: start.clone(),
                config: config.clone(),
                no_cache: *no_cache,
                metadata: metadata.clone(),
                has_context: context.is_some(),
                context_bytes: context.as_ref().map_or(0, |context| context.size_bytes),
                base,
                steps: TemplateSteps::default(),
                size_bytes: 0,
                settings: ImageSettings::default(),
                memory: false,
                error: None,
                tags: new.all_tags(),
                request: Some(new.digest()),
            },
        }
    }

    /// The snapshot that sandboxes are created from.
    pub fn result(&self) -> Option<&SnapshotId> {
        self.snapshots.last().filter(|_| self.state == TemplateState::Ready)
    }

    pub(crate) fn to_record(&self) -> TemplateRecord {
        TemplateRecord {
            id: self.id.clone(),
            account: self.account.clone(),
            name: self.name.clone(),
            version: self.version,
            state: self.state,
            created_at: self.created_at,
            finished_at: self.finished_at,
            snapshots: self.snapshots.clone(),
            // Text, numbers and maps with text as keys can always be written.
            content: serde_json::to_string(&self.content).unwrap_or_default(),
        }
    }

    pub(crate) fn from_record(record: TemplateRecord) -> Result<Self, serde_json::Error> {
        let content = serde_json::from_str(&record.content)?;
        let TemplateRecord { id, account, name, version, state, created_at, finished_at, snapshots, .. } =
            record;
        Ok(Self { id, account, name, version, state, created_at, finished_at, snapshots, content })
    }

    /// Whether a text names it, apart from its version being the newest: `ID`, `NAME:VERSION` or `NAME:TAG`.
    pub(crate) fn is_named(&self, text: &str) -> bool {
        if text == self.id.as_str() {
            return true;
        }
        text.rsplit_once(':').is_some_and(|(name, tag)| {
            name == self.name
                && (self.content.tags.iter().any(|own| own == tag) || *tag == self.version.to_string())
        })
    }
}

/// A template as others share it.
pub type SharedTemplate = Arc<Template>;

#[cfg(test)]
pub mod tests;
