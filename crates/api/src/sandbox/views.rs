//! Responses about sandboxes (docs/api.md). A field that does not apply is absent, never `null`.
//!
//! The server builds them from its records. Clients also accept `null` where the specification allows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    EgressPolicy, IngressPolicy, Isolation, NAME_KEY, NetworkPolicy, OnTimeout, Resources, SandboxConfig,
    SandboxId, SandboxState, Timestamp,
};

/// The times of a sandbox's state changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub created: Timestamp,
    pub started: Option<Timestamp>,
    pub paused: Option<Timestamp>,
    pub hibernated: Option<Timestamp>,
    pub terminated: Option<Timestamp>,
    /// The end of the timeout; `None` unless the sandbox is running.
    pub expires: Option<Timestamp>,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Sandbox))]
#[serde(rename_all = "camelCase")]
pub struct SandboxView {
    pub id: SandboxId,
    /// The name that its owner chose. Absent without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::sandbox_name, required = false))]
    pub name: Option<String>,
    pub state: SandboxState,
    /// Name of the image, or id of the snapshot that it was created from.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub image: String,
    pub resources: Resources,
    /// Environment variables of every command.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::env))]
    pub env: BTreeMap<String, String>,
    /// Default working directory of commands.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace"))]
    pub workdir: String,
    /// The timeout in ms as it was last set. Paused time does not count.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000u64, example = 300_000))]
    pub timeout_ms: u64,
    /// Idle time in ms after which the sandbox is paused. 0 disables the automatic pause.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    #[cfg_attr(feature = "openapi", schema(example = 120_000))]
    pub idle_timeout_ms: u64,
    /// What happens at the end of the timeout.
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Whether commands, files and ports may resume the sandbox.
    #[serde(default = "crate::sandbox::auto_resume_default")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub auto_resume: bool,
    /// Your own tags.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata))]
    pub metadata: BTreeMap<String, String>,
    pub network: NetworkPolicy,
    /// What separates the sandbox from the host.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub isolation: Isolation,
    pub created_at: Timestamp,
    /// Time of the first start. Absent before the first start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub started_at: Option<Timestamp>,
    /// Time of the pause. Present only while the sandbox is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub paused_at: Option<Timestamp>,
    /// Time at which the processes of a paused sandbox were stored on the disk. Absent while they are in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub hibernated_at: Option<Timestamp>,
    /// Time of the termination. Present only in a terminated sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub terminated_at: Option<Timestamp>,
    /// Time at which the timeout ends if the sandbox keeps running. Present only while the sandbox is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub expires_at: Option<Timestamp>,
}

impl SandboxView {
    /// `pausedAt` is present only while paused, even if `times` has the last pause. The name is no tag here: who creates sandboxes with
    /// the tags of another one does not mean its name.
    pub fn new(id: SandboxId, state: SandboxState, mut config: SandboxConfig, times: Times) -> Self {
        Self {
            id,
            name: config.metadata.remove(NAME_KEY),
            state,
            image: config.image,
            resources: config.resources,
            env: config.env,
            workdir: config.workdir,
            timeout_ms: config.timeout_ms,
            idle_timeout_ms: config.idle_timeout_ms,
            on_timeout: config.on_timeout,
            auto_resume: config.auto_resume,
            metadata: config.metadata,
            network: config.network,
            isolation: config.isolation,
            created_at: times.created,
            started_at: times.started,
            paused_at: times.paused.filter(|_| state == SandboxState::Paused),
            hibernated_at: times.hibernated.filter(|_| state == SandboxState::Paused),
            terminated_at: times.terminated,
            expires_at: times.expires,
        }
    }
}

/// The network policy and traffic of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Network))]
pub struct NetworkView {
    pub egress: EgressPolicy,
    /// Absent if the client did not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ingress: Option<IngressPolicy>,
    pub usage: NetworkUsage,
}

/// Traffic of a sandbox since its processes were last started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkUsage {
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    pub bytes_out: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    pub bytes_in: u64,
    /// Open connections to allowed names. Counted only with `default: deny`.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    pub connections: u64,
}

/// A list item. It has the time of its state: `startedAt` if running, `pausedAt` if paused, `terminatedAt` if terminated. With
/// `details=true` it has more fields; a terminated one has `name`, `metadata` and `reason` of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxItem {
    pub id: SandboxId,
    pub state: SandboxState,
    /// Name of the image.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub image: String,
    pub resources: Resources,
    pub created_at: Timestamp,
    /// Present if the sandbox is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub started_at: Option<Timestamp>,
    /// Present if the sandbox is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub paused_at: Option<Timestamp>,
    /// Present if the sandbox is terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub terminated_at: Option<Timestamp>,
    /// The name that its owner chose. Only with `details=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::sandbox_name, required = false))]
    pub name: Option<String>,
    /// What separates the sandbox from the host. Only with `details=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub isolation: Option<Isolation>,
    /// Your own tags. Only with `details=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata, required = false))]
    pub metadata: Option<BTreeMap<String, String>>,
    /// Time at which the processes of a paused sandbox were stored on the disk. Only with `details=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub hibernated_at: Option<Timestamp>,
    /// Time at which the timeout ends if the sandbox keeps running. Only with `details=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub expires_at: Option<Timestamp>,
    /// Why it was terminated. Only with `details=true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "timeout", nullable = false))]
    pub reason: Option<String>,
}

impl SandboxItem {
    /// Has only the time of `state`.
    pub fn new(
        id: SandboxId,
        state: SandboxState,
        image: String,
        resources: Resources,
        times: Times,
    ) -> Self {
        let shown = |time: Option<Timestamp>, with: SandboxState| time.filter(|_| state == with);
        Self {
            id,
            state,
            image,
            resources,
            created_at: times.created,
            started_at: shown(times.started, SandboxState::Running),
            paused_at: shown(times.paused, SandboxState::Paused),
            terminated_at: shown(times.terminated, SandboxState::Terminated),
            name: None,
            isolation: None,
            metadata: None,
            hibernated_at: None,
            expires_at: None,
            reason: None,
        }
    }

    /// Adds what only items of `details=true` have.
    #[must_use]
    pub fn with_details(self, sandbox: SandboxView) -> Self {
        Self {
            name: sandbox.name,
            isolation: Some(sandbox.isolation),
            metadata: Some(sandbox.metadata),
            hibernated_at: sandbox.hibernated_at,
            expires_at: sandbox.expires_at,
            ..self
        }
    }

    /// Adds what only terminated items of `details=true` have.
    #[must_use]
    pub fn with_end(self, mut metadata: BTreeMap<String, String>, reason: String) -> Self {
        let name = metadata.remove(NAME_KEY);
        // Records of early releases have none.
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        Self { name, metadata: Some(metadata), reason, ..self }
    }
}

/// Position of a page in its list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pagination {
    /// Exact number of items that match the filters.
    pub total: u64,
    /// Maximum number of items on a page.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub limit: u32,
    /// Number of items before this page.
    pub offset: u64,
    /// Whether there are items after this page.
    pub has_more: bool,
}

impl Pagination {
    /// The page of a list with `total` items in all.
    pub fn new(total: u64, limit: u32, offset: u64) -> Self {
        let has_more = offset.saturating_add(u64::from(limit)) < total;
        Self { total, limit, offset, has_more }
    }
}

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SandboxList {
    pub data: Vec<SandboxItem>,
    pub pagination: Pagination,
}

/// The response to a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PauseResult {
    pub id: SandboxId,
    /// `paused`.
    pub state: SandboxState,
    pub paused_at: Timestamp,
    /// Total running time so far, in ms.
    pub runtime_duration_ms: u64,
}

/// The response to a resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResumeResult {
    pub id: SandboxId,
    /// `running`.
    pub state: SandboxState,
    pub resumed_at: Timestamp,
    /// Duration of this pause, in ms.
    pub paused_duration_ms: u64,
}

/// The response to a termination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminateResult {
    pub id: SandboxId,
    /// `terminated`.
    pub state: SandboxState,
    pub terminated_at: Timestamp,
    /// Total running time so far, in ms.
    pub total_runtime_ms: u64,
}

#[cfg(test)]
mod tests;
