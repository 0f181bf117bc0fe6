//! Request ids: in `X-Request-Id` of the response, in error bodies and in the log.
//!
//! A well-formed id of the client is used as it is, so that client and log have the same id. Any other is replaced, never
//! refused.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use rand::Rng;

pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// The id of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(pub Arc<str>);

impl RequestId {
    /// The client's id if it is well-formed, otherwise a generated one.
    pub fn of(headers: &HeaderMap) -> Self {
        Self::from_client(headers).unwrap_or_else(Self::generate)
    }

    /// A random id.
    pub fn generate() -> Self {
        let mut random = [0; 12];
        rand::rng().fill_bytes(&mut random);
        Self(rules::generated_request_id(random).into())
    }

    pub fn header_value(&self) -> HeaderValue {
        // Both kinds consist of characters that a header value may have.
        HeaderValue::from_str(&self.0).unwrap_or(HeaderValue::from_static(""))
    }

    fn from_client(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(HEADER).iter();
        let only = values.next().filter(|_| values.next().is_none())?;
        rules::well_formed_request_id(only.as_bytes()).map(|id| Self(id.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> RequestId {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        RequestId::of(&headers)
    }

    #[test]
    fn a_malformed_request_id_is_replaced() {
        assert_eq!(&*of(&["a.B_c:9-0"]).0, "a.B_c:9-0");
        let longest = "x".repeat(128);
        assert_eq!(*of(&[&longest]).0, longest);
        for bad in ["", "a b", "a\tb", "ü", "a,b", "<script>", &"x".repeat(129)] {
            let id = of(&[bad]);
            assert!(id.0.starts_with("req_") && id.0.len() == 24, "{bad:?} gave {id:?}");
        }
        assert!(of(&["one", "two"]).0.starts_with("req_"), "which of two would it be?");
        assert_eq!(of(&["a.b"]).header_value(), "a.b");
    }

    #[test]
    fn generated_ids_are_valid_and_unique() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| RequestId::generate().0).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| rules::well_formed_request_id(id.as_bytes()).is_some()));
    }
}
