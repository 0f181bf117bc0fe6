//! Exposed ports (docs/ports.md).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Integer, Timestamp};

named! {
    /// Who can access an exposed port: `private`, with a key of the account or a token; `public`, anyone who knows the URL.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    PortVisibility by as_str {
        /// Requests with a key of the account that has the scope `execute`, or with a token.
        #[default]
        Private = "private",
        /// Anyone who knows the URL.
        Public = "public",
    }
}

/// The text is not a visibility.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a visibility of a port")]
pub struct UnknownVisibility;

impl FromStr for PortVisibility {
    type Err = UnknownVisibility;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or(UnknownVisibility)
    }
}

/// An exposed port of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Port {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 8080))]
    pub port: u16,
    /// URL of the port.
    #[cfg_attr(
        feature = "openapi",
        schema(example = "https://8080-sb-4h1v8x2k9qz7m3t5w0ry.sandboxes.localhost:8443")
    )]
    pub url: String,
    pub exposed_at: Timestamp,
    pub visibility: PortVisibility,
    /// Whether a request through the port resumes a paused sandbox.
    pub auto_resume: bool,
}

/// The exposed ports of a sandbox, sorted by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PortList {
    pub data: Vec<Port>,
}

/// A closed port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PortClosed {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, example = 8080))]
    pub port: u16,
    pub closed_at: Timestamp,
}

/// A token that gives access to one port until it expires.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PortToken {
    /// Send it in the header `X-Sandbox-Token`.
    #[cfg_attr(feature = "openapi", schema(pattern = "^spt_[0-9a-z]{64}$"))]
    pub token: String,
    pub expires_at: Timestamp,
    /// The port's URL with the token as a query parameter, for browsers.
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
    /// Who can access the port. Default: `private`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub visibility: Option<PortVisibility>,
    /// Whether a request through the port resumes a paused sandbox. Default: `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub auto_resume: Option<bool>,
}

/// The body of a request that creates a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TokenBody {
    /// Lifetime of the token in ms. Default: 3600000 (an hour); at most 604800000 (a week).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1000, maximum = 604_800_000_u64))]
    pub expires_in_ms: Option<Integer>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visibility_is_parsed_by_its_exact_name() {
        for visibility in PortVisibility::ALL {
            assert_eq!(visibility.as_str().parse(), Ok(visibility));
            assert_eq!(serde_json::to_value(visibility).unwrap(), visibility.as_str());
        }
        for text in ["", "Public", "public ", "priv", "privatepublic"] {
            assert_eq!(text.parse::<PortVisibility>(), Err(UnknownVisibility), "{text}");
        }
        assert_eq!(PortVisibility::default(), PortVisibility::Private, "nobody is let in by an omission");
    }

    #[test]
    fn logs_have_neither_the_token_nor_the_url_with_it() {
        let token = PortToken {
            token: "spt_secret".to_owned(),
            expires_at: Timestamp(0),
            url: "https://8080-sb.localhost/?token=spt_secret".to_owned(),
        };
        let text = format!("{token:?}");
        assert!(text.starts_with("PortToken { expires_at: ") && !text.contains("secret"), "{text}");
    }
}
