//! A sandbox as a client asks for it and sees it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a sandbox is doing.
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

/// What a sandbox may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// Virtual processors.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::cpu))]
    pub cpu: u32,
    /// Memory in MB.
    #[cfg_attr(feature = "openapi", schema(minimum = 2048, maximum = 16_384, example = 4096))]
    pub memory_mb: u32,
    /// Disk in MB.
    #[cfg_attr(feature = "openapi", schema(minimum = 5120, maximum = 51_200, example = 10_240))]
    pub disk_mb: u32,
}

/// What egress does with a domain that is not listed: `allow` lets everything public through, `deny` the listed ones only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum EgressDefault {
    #[default]
    Allow,
    Deny,
}

/// Outgoing traffic, by domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EgressPolicy {
    /// Domains that egress is allowed to: `example.com` is that name alone, `*.example.com` every name below it.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::domains))]
    pub allow: Vec<String>,
    pub default: EgressDefault,
}

/// Incoming traffic. Kept and shown; a port is reached by exposing it, whatever stands here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct IngressPolicy {
    /// Inbound ports to allow.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::ports))]
    pub allow_ports: Vec<u16>,
}

/// The network policy of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkPolicy {
    pub egress: EgressPolicy,
    /// Only there if it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ingress: Option<IngressPolicy>,
}

/// Everything a client decides about a sandbox, complete: defaults are already in.
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
