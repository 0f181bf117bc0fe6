//! The response of the health endpoint (docs/api.md).

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// The health of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`.
    #[cfg_attr(feature = "openapi", schema(example = "ok"))]
    pub status: String,
    /// Version of the API.
    #[cfg_attr(feature = "openapi", schema(example = "v1"))]
    pub version: String,
    pub timestamp: Timestamp,
}

impl Health {
    /// The response of a healthy service.
    pub fn ok(timestamp: Timestamp) -> Self {
        Self { status: "ok".to_owned(), version: crate::VERSION.to_owned(), timestamp }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_ok_and_the_version_of_the_interface() {
        assert_eq!(
            serde_json::to_string(&Health::ok(Timestamp(0))).unwrap(),
            r#"{"status":"ok","version":"v1","timestamp":"1970-01-01T00:00:00.000Z"}"#
        );
    }
}
