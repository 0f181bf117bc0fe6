//! Ports of a sandbox and their public addresses (section 2.10, and additions of ours).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Integer, Timestamp};

/// Who reaches an exposed port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum PortVisibility {
    /// Who has a key of the account or a token.
    #[default]
    Private,
    /// Anybody who has its URL.
    Public,
}

/// A text that names no visibility.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a visibility of a port")]
pub struct UnknownVisibility;

impl PortVisibility {
    /// As bodies write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Public => "public",
        }
    }
}

impl fmt::Display for PortVisibility {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PortVisibility {
    type Err = UnknownVisibility;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Private, Self::Public].into_iter().find(|it| it.as_str() == text).ok_or(UnknownVisibility)
    }
}

/// A port of a sandbox that is reached from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Port {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 8080))]
    pub port: u16,
    /// Where it is reached.
    #[cfg_attr(
        feature = "openapi",
        schema(example = "https://8080-sb-4h1v8x2k9qz7m3t5w0ry.sandboxes.localhost:8443")
    )]
    pub url: String,
    pub exposed_at: Timestamp,
    pub visibility: PortVisibility,
    /// Whether traffic resumes the sandbox when it is paused.
    pub auto_resume: bool,
}

/// The exposed ports of a sandbox, by their numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortList {
    pub data: Vec<Port>,
}

/// A port that is exposed no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PortClosed {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 8080))]
    pub port: u16,
    pub closed_at: Timestamp,
}

/// A key to one port for a while.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PortToken {
    /// Goes as the header `X-Sandbox-Token`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^spt_[0-9a-z]{64}$"))]
    pub token: String,
    pub expires_at: Timestamp,
    /// The port's URL with the token in it, for a browser.
    pub url: String,
}

impl fmt::Debug for PortToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortToken").field("expires_at", &self.expires_at).finish_non_exhaustive()
    }
}

/// The body of a request that exposes a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExposeBody {
    #[cfg_attr(feature = "openapi", schema(value_type = u16, minimum = 1, maximum = 65535, example = 8080))]
    pub port: Integer,
    /// `private` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub visibility: Option<PortVisibility>,
    /// Whether traffic resumes the sandbox when it is paused; `true` where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub auto_resume: Option<bool>,
}

/// The body of a request for a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TokenBody {
    /// How long it is good for; an hour where it is left out, a week at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1000, maximum = 604_800_000_u64))]
    pub expires_in_ms: Option<Integer>,
}
