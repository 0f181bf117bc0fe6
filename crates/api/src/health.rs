//! What the health endpoint answers (section 2.9).

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// How the service is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok` when healthy.
    #[cfg_attr(feature = "openapi", schema(example = "ok"))]
    pub status: String,
    /// The version of the interface.
    #[cfg_attr(feature = "openapi", schema(example = "v1"))]
    pub version: String,
    pub timestamp: Timestamp,
}

impl Health {
    /// All is well.
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
