//! Requests that pause and resume sandboxes.

use serde::{Deserialize, Serialize};

/// The body of a request that pauses a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PauseBody {
    /// Whether to store the processes on the disk at once. Then they need no memory, and survive a reboot of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub hibernate: Option<bool>,
}

/// The body of a request that resumes a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResumeBody {
    /// Whether to end the processes of the sandbox, frozen or stored, and to start it again on its disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub cold: Option<bool>,
    /// Whether to adopt the sandbox if another host has stored it in the object store and this one does not have it. That host must be
    /// out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub adopt: Option<bool>,
}
