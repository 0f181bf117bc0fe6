//! Web pages that may call the API, as the operator named them by origin (CORS).
//!
//! A browser asks with a preflight request before it sends a request with an API key, and shows a response to the page only if
//! the headers below allow it. Other clients ignore these headers, so they grant nothing without a key.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
const EVERYTHING: HeaderValue = HeaderValue::from_static("*");
/// How long a browser may reuse the response to a preflight request, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

/// Origins whose pages may call the API.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    any: bool,
    listed: Vec<HeaderValue>,
}

/// A configured text that is not an origin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an origin; allowed: '*', and scheme, host and port such as 'https://app.example.com'")]
pub struct BadOrigin(String);

impl AllowedOrigins {
    /// Origins as the configuration has them.
    pub fn parse(texts: &[String]) -> Result<Self, BadOrigin> {
        let mut origins = Self::default();
        for text in texts {
            if text == "*" {
                origins.any = true;
            } else {
                origins.listed.push(origin(text).ok_or_else(|| BadOrigin(text.clone()))?);
            }
        }
        Ok(origins)
    }

    /// The origin of the page that sent the request, if it may call the API.
    pub fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        (self.any || self.listed.contains(origin)).then(|| origin.clone())
    }
}

/// An origin is compared as bytes, so it must be written as browsers send it: lower case, no path, no default port.
fn origin(text: &str) -> Option<HeaderValue> {
    let (scheme, rest) = text.split_once("://")?;
    let is_written_as_sent = text.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
    let has_default_port =
        matches!((scheme, rest.rsplit_once(':')), ("http", Some((_, "80"))) | ("https", Some((_, "443"))));
    let is_origin = !scheme.is_empty()
        && !rest.is_empty()
        && !rest.contains(['/', '?', '#', '@', '*', ','])
        && !has_default_port;
    if is_written_as_sent && is_origin { HeaderValue::from_str(text).ok() } else { None }
}

/// The response to a preflight request of an allowed page; `None` for any other request.
pub fn preflight(method: &Method, headers: &HeaderMap) -> Option<Response> {
    if method != Method::OPTIONS || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    // A wildcard would not include Authorization.
    if let Some(wanted) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    Some(response)
}

/// Lets the page read the response with all its headers.
pub fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EVERYTHING);
    // The response depends on who asks.
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str]) -> Result<AllowedOrigins, BadOrigin> {
        AllowedOrigins::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    fn asks(origins: &AllowedOrigins, origin: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, HeaderValue::from_str(origin).unwrap());
        origins.of(&headers).is_some()
    }

    #[test]
    fn only_listed_origins_are_allowed() {
        let origins = parse(&["https://app.example.com", "http://localhost:3000"]).unwrap();
        for (origin, allowed) in [
            ("https://app.example.com", true),
            ("http://localhost:3000", true),
            ("http://app.example.com", false),
            ("https://app.example.com:8443", false),
            ("https://evil.example.com", false),
            ("https://app.example.com.evil.test", false),
            ("null", false),
        ] {
            assert_eq!(asks(&origins, origin), allowed, "{origin}");
        }
        assert!(asks(&parse(&["*"]).unwrap(), "https://anything.test"));
        assert!(!asks(&AllowedOrigins::default(), "https://app.example.com"));
        assert_eq!(origins.of(&HeaderMap::new()), None);
    }

    #[test]
    fn texts_that_no_browser_sends_are_rejected() {
        for text in [
            "app.example.com",
            "https://",
            "https://app.example.com/",
            "https://App.example.com",
            "https://app.example.com:443",
            "http://app.example.com:80",
            "https://*.example.com",
            "https://a b",
            "",
            "null",
        ] {
            assert_eq!(parse(&[text]), Err(BadOrigin(text.to_owned())), "{text}");
        }
    }
}
