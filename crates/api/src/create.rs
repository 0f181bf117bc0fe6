//! The bodies of create and of a network change. An absent field takes its default.
//!
//! Clients write these types, the server reads them, and the OpenAPI document describes them. Numbers are [`Integer`]s: the server
//! checks ranges after reading, so that a message can name the value it received.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{EgressDefault, Integer};

/// What is asked of a new sandbox. Only `image` has to be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateBody {
    /// Base image: a name of the catalogue.
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
    /// Default working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::workdir, required = false))]
    pub workdir: Option<String>,
    /// How long the sandbox may run in all, in ms. Time spent paused does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000u64))]
    #[cfg_attr(feature = "openapi", schema(default = 300_000))]
    pub timeout_ms: Option<Integer>,
    /// Idle time in ms after which the sandbox is paused; 0 for never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(value_type = Option<u64>, nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64)
    )]
    #[cfg_attr(feature = "openapi", schema(default = 120_000))]
    pub idle_timeout_ms: Option<Integer>,
    /// Tags of yours, by which lists can be filtered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::metadata, required = false))]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub network: Option<CreateNetwork>,
}

/// The sizes of a new sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateResources {
    /// Virtual processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::cpu_asked, required = false))]
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

/// A network policy as clients write it: of a new sandbox, or a change of one that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateNetwork {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub egress: Option<CreateEgress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub ingress: Option<CreateIngress>,
}

/// Outgoing traffic, as clients write it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateEgress {
    /// Domains that egress is allowed to: `example.com` is that name alone, `*.example.com` every name below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::domains, required = false))]
    pub allow: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub default: Option<EgressDefault>,
}

/// Incoming traffic, as clients write it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateIngress {
    /// Inbound ports to allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::ports, required = false))]
    pub allow_ports: Option<Vec<Integer>>,
}
