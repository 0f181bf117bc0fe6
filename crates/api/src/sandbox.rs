//! A sandbox as a client asks for it and sees it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The four states of the specification (section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[serde(rename_all = "camelCase")]
pub struct Resources {
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
}

/// What egress does with a domain that is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EgressDefault {
    #[default]
    Allow,
    Deny,
}

/// Egress by domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct EgressPolicy {
    pub allow: Vec<String>,
    pub default: EgressDefault,
}

/// The network policy of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NetworkPolicy {
    pub egress: EgressPolicy,
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
