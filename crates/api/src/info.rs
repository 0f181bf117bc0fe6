//! What the service is and what it allows the caller (`GET /v1/info`).

use serde::{Deserialize, Serialize};

use crate::Isolation;
use crate::bounds::Range;

/// The service, its isolation backends, and the limits for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Info))]
#[serde(rename_all = "camelCase")]
pub struct InfoView {
    /// Version of the program.
    #[cfg_attr(feature = "openapi", schema(example = "0.1.0"))]
    pub version: String,
    /// The isolation backends of the service, weakest first.
    pub backends: Vec<BackendView>,
    /// What `auto` means for the caller, unless the image has a choice of its own.
    pub default_isolation: Isolation,
    /// The weakest isolation that the caller can choose. An image may require a stronger one.
    pub minimum_isolation: Isolation,
    pub limits: LimitsView,
}

/// An isolation backend and what its sandboxes can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Backend))]
#[serde(rename_all = "camelCase")]
pub struct BackendView {
    pub name: Isolation,
    /// Whether sandboxes have a network besides their loopback interface.
    pub network: bool,
    /// Whether snapshots can contain the memory of sandboxes.
    pub memory_snapshots: bool,
    /// Whether paused sandboxes can be stored with their processes, so that they need no memory and survive a reboot of the host.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub hibernation: bool,
}

/// The limits for the caller's key and for one sandbox. Quotas of the account are in `GET /v1/usage`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Limits))]
#[serde(rename_all = "camelCase")]
pub struct LimitsView {
    /// Requests of each kind in a minute; `null` if unlimited.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, required = true))]
    pub read_per_minute: Option<u32>,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, required = true))]
    pub write_per_minute: Option<u32>,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, required = true))]
    pub create_per_minute: Option<u32>,
    /// Of one sandbox.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, required = true))]
    pub execute_per_minute: Option<u32>,
    /// Operations in one sandbox on files, ports, terminals, code and so on.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, required = true))]
    pub operate_per_minute: Option<u32>,
    /// Attached commands that may run at a time in one sandbox.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub concurrent_executions: u32,
    /// Detached commands and terminals that may run at a time in one sandbox.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, required = true))]
    pub detached_executions: u32,
    /// Commands that may wait in one sandbox.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub execution_queue: u32,
    /// Bytes of each stream in a buffered response.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub max_output_bytes: u64,
    /// Allowed numbers of vCPUs.
    #[cfg_attr(feature = "openapi", schema(example = json!([2, 4, 8])))]
    pub cpu: Vec<u32>,
    pub memory_mb: RangeView,
    pub disk_mb: RangeView,
    pub timeout_ms: RangeView,
    pub idle_timeout_ms: RangeView,
}

/// Allowed values, and the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Range))]
pub struct RangeView {
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub min: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub max: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub default: u64,
}

impl<T: Into<u64> + Copy> From<Range<T>> for RangeView {
    fn from(range: Range<T>) -> Self {
        Self { min: range.min.into(), max: range.max.into(), default: range.default.into() }
    }
}
