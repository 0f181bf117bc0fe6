//! What the service answers about sandboxes (sections 2.1 to 2.6). A field that does not apply is left out, never `null`.
//!
//! The server builds these from its records; clients read them, and also take `null` where the specification allows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    EgressPolicy, IngressPolicy, NetworkPolicy, Resources, SandboxConfig, SandboxId, SandboxState, Timestamp,
};

/// When a sandbox came into its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    pub created: Timestamp,
    pub started: Option<Timestamp>,
    pub paused: Option<Timestamp>,
    pub terminated: Option<Timestamp>,
}

/// A sandbox, complete: what create and get answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Sandbox))]
#[serde(rename_all = "camelCase")]
pub struct SandboxView {
    pub id: SandboxId,
    pub state: SandboxState,
    /// Base image.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub image: String,
    pub resources: Resources,
    /// Environment variables of every command.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::env))]
    pub env: BTreeMap<String, String>,
    /// Default working directory.
    #[cfg_attr(feature = "openapi", schema(example = "/workspace"))]
    pub workdir: String,
    /// How long the sandbox may run in all, in ms. Time spent paused does not count.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86_400_000u64, example = 300_000))]
    pub timeout_ms: u64,
    /// Idle time in ms after which the sandbox is paused; 0 for never.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    #[cfg_attr(feature = "openapi", schema(example = 120_000))]
    pub idle_timeout_ms: u64,
    /// Tags of yours.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata))]
    pub metadata: BTreeMap<String, String>,
    pub network: NetworkPolicy,
    pub created_at: Timestamp,
    /// Once it has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub started_at: Option<Timestamp>,
    /// While it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub paused_at: Option<Timestamp>,
    /// Once it was terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub terminated_at: Option<Timestamp>,
}

impl SandboxView {
    /// `pausedAt` is shown while paused only, whatever `times` still knows.
    pub fn new(id: SandboxId, state: SandboxState, config: SandboxConfig, times: Times) -> Self {
        Self {
            id,
            state,
            image: config.image,
            resources: config.resources,
            env: config.env,
            workdir: config.workdir,
            timeout_ms: config.timeout_ms,
            idle_timeout_ms: config.idle_timeout_ms,
            metadata: config.metadata,
            network: config.network,
            created_at: times.created,
            started_at: times.started,
            paused_at: times.paused.filter(|_| state == SandboxState::Paused),
            terminated_at: times.terminated,
        }
    }
}

/// The network of a sandbox (an addition of ours).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Network))]
pub struct NetworkView {
    pub egress: EgressPolicy,
    /// Only there if it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ingress: Option<IngressPolicy>,
    pub usage: NetworkUsage,
}

/// What a sandbox sent and received since its processes were last started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkUsage {
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    pub bytes_out: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    pub bytes_in: u64,
    /// Connections to allowed names that are open now; only with `default: deny` they are counted.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 9_007_199_254_740_991u64))]
    pub connections: u64,
}

/// A sandbox as lists show it. Of `startedAt`, `pausedAt` and `terminatedAt` the one that goes with its state is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxItem {
    pub id: SandboxId,
    pub state: SandboxState,
    /// Base image.
    #[cfg_attr(feature = "openapi", schema(example = "ubuntu:24.04"))]
    pub image: String,
    pub resources: Resources,
    pub created_at: Timestamp,
    /// Of one that is running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub started_at: Option<Timestamp>,
    /// Of one that is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub paused_at: Option<Timestamp>,
    /// Of one that was terminated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub terminated_at: Option<Timestamp>,
}

impl SandboxItem {
    /// Shows of `times` what goes with `state`.
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
        }
    }
}

/// Which part of a list this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pagination {
    /// All that fit the filter, exactly.
    pub total: u64,
    /// Items a page.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub limit: u32,
    /// Items skipped.
    pub offset: u64,
    /// Whether there are items after this page.
    pub has_more: bool,
}

impl Pagination {
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

/// What pause answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PauseResult {
    pub id: SandboxId,
    /// `paused`.
    pub state: SandboxState,
    pub paused_at: Timestamp,
    /// Running time over all runs, in ms.
    pub runtime_duration_ms: u64,
}

/// What resume answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResumeResult {
    pub id: SandboxId,
    /// `running`.
    pub state: SandboxState,
    pub resumed_at: Timestamp,
    /// How long this pause was, in ms.
    pub paused_duration_ms: u64,
}

/// What delete answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminateResult {
    pub id: SandboxId,
    /// `terminated`.
    pub state: SandboxState,
    pub terminated_at: Timestamp,
    /// Running time over all runs, in ms.
    pub total_runtime_ms: u64,
}

#[cfg(test)]
mod tests;
