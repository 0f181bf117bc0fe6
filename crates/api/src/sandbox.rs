//! The configuration and the state of a sandbox.

pub mod create;
pub mod name;
pub mod pause;
mod stored;
pub mod views;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::NAME_KEY;

named! {
    /// State of a sandbox.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    SandboxState by name {
        Creating = "creating",
        Running = "running",
        Paused = "paused",
        Terminated = "terminated",
    }
}

/// What happens to a running sandbox at the end of its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum OnTimeout {
    #[default]
    Terminate,
    Pause,
}

/// What becomes of the processes of a sandbox that is paused at its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessesAtTimeout {
    /// They are frozen, and continue at the resume.
    #[default]
    Kept,
    /// They end. The resume starts the sandbox again on its disk.
    Ended,
}

impl ProcessesAtTimeout {
    fn are_kept(&self) -> bool {
        *self == Self::Kept
    }
}

named! {
    /// What separates a sandbox from the host, weakest first.
    #[derive(PartialOrd, Ord, Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    Isolation by name {
        /// Namespaces, cgroups and a filter of system calls. The host's kernel serves the remaining calls.
        #[default]
        Container = "container",
        /// gVisor: a kernel in user space serves the system calls.
        Gvisor = "gvisor",
    }
}

/// The isolation that a create asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum IsolationChoice {
    /// The operator's choice for the image and the account.
    #[default]
    Auto,
    Container,
    Gvisor,
}

impl IsolationChoice {
    /// `None` leaves the choice to the operator.
    pub const fn named(self) -> Option<Isolation> {
        match self {
            Self::Auto => None,
            Self::Container => Some(Isolation::Container),
            Self::Gvisor => Some(Isolation::Gvisor),
        }
    }
}

/// A name that is no isolation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it must be auto, container or gvisor")]
pub struct UnknownIsolation;

impl std::str::FromStr for IsolationChoice {
    type Err = UnknownIsolation;

    fn from_str(name: &str) -> Result<Self, UnknownIsolation> {
        match name {
            "auto" => Ok(Self::Auto),
            "container" => Ok(Self::Container),
            "gvisor" => Ok(Self::Gvisor),
            _ => Err(UnknownIsolation),
        }
    }
}

impl From<Isolation> for IsolationChoice {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::Container => Self::Container,
            Isolation::Gvisor => Self::Gvisor,
        }
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
#[serde(rename_all = "camelCase")]
pub struct EgressPolicy {
    /// Allowed domains. `example.com` matches only that name; `*.example.com` matches every name below it, but not
    /// `example.com`.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::domains))]
    pub allow: Vec<String>,
    pub default: EgressDefault,
    /// Allowed IPv4 networks and addresses. They take precedence over `denyNetworks`. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::allowed_networks, required = false))]
    pub allow_networks: Vec<String>,
    /// Denied IPv4 networks and addresses. Without effect if `default` is `deny`. Absent if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::denied_networks, required = false))]
    pub deny_networks: Vec<String>,
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
// The derived functions are inherent; the traits, in `stored`, call them.
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct SandboxConfig {
    pub image: String,
    pub resources: Resources,
    pub env: BTreeMap<String, String>,
    pub workdir: String,
    pub timeout_ms: u64,
    pub idle_timeout_ms: u64,
    /// Absent in records of earlier versions, as is `auto_resume`.
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Absent in records if they are kept.
    #[serde(default, skip_serializing_if = "ProcessesAtTimeout::are_kept")]
    pub processes_at_timeout: ProcessesAtTimeout,
    /// Whether commands, files and ports may resume the sandbox.
    #[serde(default = "auto_resume_default")]
    pub auto_resume: bool,
    /// The tags of the owner. The name of the sandbox is among them, under [`NAME_KEY`].
    pub metadata: BTreeMap<String, String>,
    pub network: NetworkPolicy,
    /// Absent in records of earlier versions.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whether the user `user` exists in the sandbox, and set-user-ID programs such as `sudo` work for commands with a user.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub default_user: bool,
    /// What other interfaces to sandboxes keep with them, by the name of the owner, which must not be that of a field: records have them
    /// beside the fields. Only its owner reads a value. No response contains them.
    #[serde(flatten)]
    pub extensions: BTreeMap<String, Value>,
}

impl SandboxConfig {
    /// The name of the sandbox, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.metadata.get(NAME_KEY).map(String::as_str)
    }
}

pub(crate) fn auto_resume_default() -> bool {
    true
}
