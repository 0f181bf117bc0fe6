//! The response header that lists the fields of the request body that the service has ignored.
//!
//! The body is parsed deep in a handler, perhaps in a task of its own, or not at all if its response is replayed. The payload and the
//! completed declaration share an [`IgnoredReport`]: whoever parses the body fills it, and the declaration writes the header.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use reader::IgnoredFields;

const HEADER: HeaderName = HeaderName::from_static("sandboxd-ignored-fields");

/// The ignored fields of one body, once it is parsed. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct IgnoredReport(Arc<OnceLock<IgnoredFields>>);

impl IgnoredReport {
    /// A body that is parsed again has the same ignored fields.
    pub fn fill(&self, ignored: IgnoredFields) {
        let _ = self.0.set(ignored);
    }

    /// Whether the body was parsed.
    pub fn is_filled(&self) -> bool {
        self.0.get().is_some()
    }

    /// Adds the header if there is something to list.
    pub fn write(&self, headers: &mut HeaderMap) {
        let listed = self.0.get().and_then(IgnoredFields::header_value);
        if let Some(value) = listed.and_then(|text| HeaderValue::try_from(text).ok()) {
            headers.insert(HEADER, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use api::CreateBody;
    use reader::RequestBody as _;

    use super::*;

    #[test]
    fn the_header_is_there_if_a_field_was_ignored() {
        let report = IgnoredReport::default();
        let mut headers = HeaderMap::new();
        report.write(&mut headers);
        report.clone().fill(IgnoredFields::default());
        report.write(&mut headers);
        assert!(headers.is_empty());

        let report = IgnoredReport::default();
        let body = r#"{"image":"x","colour":1,"r\u00e9gion\r\n":"eu"}"#;
        report.clone().fill(CreateBody::parse(body.as_bytes()).unwrap().ignored);
        report.write(&mut headers);
        assert_eq!(headers[HEADER], r"colour, r%C3%A9gion\r\n");
    }
}
