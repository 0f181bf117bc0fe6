//! The configuration and the state of a sandbox.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// State of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum SandboxState {
    Creating,
    Running,
    Paused,
    Terminated,
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Creating => "creating",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Terminated => "terminated",
        })
    }
}

/// Resources of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Number of vCPUs.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::cpu))]
    pub cpu: u32,
    /// Memory in MB.
    #[cfg_attr(feature = "openapi", schema(minimum = 2048, maximum = 16_384, example = 4096))]
    pub memory_mb: u32,
    /// Disk in MB.
    #[cfg_attr(feature = "openapi", schema(minimum = 5120, maximum = 51_200, example = 10_240))]
    pub disk_mb: u32,
}

/// Which destinations are allowed: with `allow`, all public addresses; with `deny`, only the domains in `allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EgressDefault {
    #[default]
    Allow,
    Deny,
}

/// The policy for outgoing connections.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EgressPolicy {
    /// Allowed domains. `example.com` matches only that name; `*.example.com` matches every name below it, but not
    /// `example.com`.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::domains))]
    pub allow: Vec<String>,
    pub default: EgressDefault,
}

/// The policy for exposed ports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct IngressPolicy {
    /// Ports that may be exposed. If absent, all ports may be exposed; if empty, none.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::ports))]
    pub allow_ports: Vec<u16>,
}

/// The network policy of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkPolicy {
    pub egress: EgressPolicy,
    /// Absent if the client did not set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ingress: Option<IngressPolicy>,
}

/// The configuration of a sandbox with all defaults applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxConfig {
    pub image: String,
    pub resources: Resources,
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    pub timeout_ms: u64,
    pub idle_timeout_ms: u64,
    pub metadata: BTreeMap<String, String>,
    pub network: NetworkPolicy,
}
