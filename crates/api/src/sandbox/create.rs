//! The bodies of create and of a network change. An absent field takes its default.
//!
//! Clients serialize these types, the server parses them, and the OpenAPI document describes them. Numbers are [`Integer`]s: the
//! server checks ranges after parsing, so that a message can name the value received.
//!
//! Types that bound what a sandbox can use or reach deny unknown fields. In others the server refuses those that resemble a known one,
//! and ignores the rest, so that fields can be added.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{EgressDefault, Integer, IsolationChoice, OnTimeout};

/// The body of a create request. Only `image` is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateBody {
    /// Name of a template of the account or of an image in the operator's catalogue, or id of a template or snapshot. The disk of a
    /// sandbox from a snapshot or template is at least as large as that of the sandbox that it was taken of, and its isolation at least
    /// as strong. With processes it needs at least as much memory, too.
    #[cfg_attr(feature = "openapi", schema(required = true, min_length = 1, max_length = 512))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^[\x21-\x7e]+$", example = "ubuntu:24.04"))]
    pub image: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub resources: Option<CreateResources>,
    /// Environment variables of every command.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// Default working directory of commands. Created if it does not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::workdir, required = false))]
    pub workdir: Option<String>,
    /// Total running time in ms at which the timeout ends. Paused time does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000u64))]
    #[cfg_attr(feature = "openapi", schema(default = 300_000))]
    pub timeout_ms: Option<Integer>,
    /// Idle time in ms after which the sandbox is paused. 0 disables the automatic pause.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<u64>, nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64)
    )]
    #[cfg_attr(feature = "openapi", schema(default = 120_000))]
    pub idle_timeout_ms: Option<Integer>,
    /// What happens at the end of the timeout: the sandbox is terminated or paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = "terminate"))]
    pub on_timeout: Option<OnTimeout>,
    /// Whether commands, files and ports resume the sandbox while it is paused. With `false` only a resume does,
    /// whatever a request or a port allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
    /// A name of your choice, which paths accept in place of the id. At most one sandbox of the account that is not terminated has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::sandbox_name, required = false))]
    pub name: Option<String>,
    /// Your own tags. Lists can be filtered by them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata, required = false))]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub network: Option<CreateNetwork>,
    /// What separates the sandbox from the host: `container`, `gvisor`, or `auto` for the operator's choice. The service may
    /// require a stronger one than `container`, and may lack one; `GET /v1/info` lists those that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = "auto"))]
    pub isolation: Option<IsolationChoice>,
    /// Whether a sandbox from a snapshot or template with processes starts without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub cold: Option<bool>,
}

/// The body of a change of the timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TimeoutBody {
    /// Running time in ms from now at which the timeout ends, shorter or longer than before. 0 ends it now.
    #[cfg_attr(feature = "openapi", schema(value_type = u64, minimum = 0, maximum = 86_400_000u64))]
    #[cfg_attr(feature = "openapi", schema(example = 300_000))]
    pub timeout_ms: Integer,
}

/// The resources of a new sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateResources {
    /// Number of vCPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::requested_cpu, required = false))]
    pub cpu: Option<Integer>,
    /// Memory in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, nullable = false, minimum = 2048, maximum = 16_384))]
    #[cfg_attr(feature = "openapi", schema(default = 4096))]
    pub memory_mb: Option<Integer>,
    /// Disk in MB.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, nullable = false, minimum = 5120, maximum = 51_200))]
    #[cfg_attr(feature = "openapi", schema(default = 10_240))]
    pub disk_mb: Option<Integer>,
}

/// The network policy in a create request, and the body of a policy change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CreateNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub egress: Option<CreateEgress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ingress: Option<CreateIngress>,
}

/// The policy for outgoing connections, in a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateEgress {
    /// Allowed domains. `example.com` matches only that name; `*.example.com` matches every name below it, but not
    /// `example.com`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::domains, required = false))]
    pub allow: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub default: Option<EgressDefault>,
    /// Allowed IPv4 networks and addresses. They take precedence over `denyNetworks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::allowed_networks, required = false))]
    pub allow_networks: Option<Vec<String>>,
    /// Denied IPv4 networks and addresses. Without effect if `default` is `deny`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::denied_networks, required = false))]
    pub deny_networks: Option<Vec<String>>,
}

/// The policy for exposed ports, in a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateIngress {
    /// Ports that may be exposed. If absent, all ports may be exposed; if empty, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::ports, required = false))]
    pub allow_ports: Option<Vec<Integer>>,
}
