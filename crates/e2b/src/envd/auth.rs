//! What a request to a sandbox's files and processes sends of its right, and of its user. `target` checks the token.

use std::sync::Arc;

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::connect::{Code, RpcError};

const TOKEN_HEADER: &str = "x-access-token";

/// The access token that a request sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SentToken<'a> {
    One(&'a str),
    /// It is not text, or was sent twice.
    Malformed,
    Missing,
}

/// Why a request without a signature may use a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// The owner of the sandbox asked for an open one.
    Open,
    /// The request has the access token that was made for the key with this id.
    Key(Arc<str>),
}

impl Grant {
    /// The key whose holder asks.
    pub fn key_id(&self) -> Option<&str> {
        match self {
            Self::Open => None,
            Self::Key(id) => Some(id),
        }
    }
}

/// The result of the check of the access token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenCheck {
    Valid(Grant),
    Wrong,
    Missing,
}

pub fn sent_token(headers: &HeaderMap) -> SentToken<'_> {
    let mut sent = headers.get_all(TOKEN_HEADER).into_iter();
    match (sent.next(), sent.next()) {
        (None, _) => SentToken::Missing,
        (Some(token), None) => token.to_str().map_or(SentToken::Malformed, SentToken::One),
        (Some(_), Some(_)) => SentToken::Malformed,
    }
}

/// The user name of basic authentication, or a default. The password is ignored: the access token authenticates.
pub fn user(headers: &HeaderMap, default: &str) -> Result<String, RpcError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(default.to_owned()) };
    let invalid =
        || RpcError::new(Code::Unauthenticated, "the header Authorization is not 'Basic' with a user name");
    let (scheme, credentials) =
        value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(invalid)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(invalid());
    }
    let decoded = STANDARD.decode(credentials.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or_else(invalid)?;
    let name = decoded.split_once(':').map_or(decoded.as_str(), |(name, _)| name);
    Ok(if name.is_empty() { default } else { name }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_token_must_be_sent_once() {
        assert_eq!(sent_token(&headers(&[("x-access-token", "secret")])), SentToken::One("secret"));
        assert_eq!(sent_token(&HeaderMap::new()), SentToken::Missing);
        let twice = headers(&[("x-access-token", "secret"), ("x-access-token", "secret")]);
        assert_eq!(sent_token(&twice), SentToken::Malformed);
    }

    #[test]
    fn the_user_is_that_of_basic_authentication() {
        let of = |text: &str| user(&headers(&[("authorization", text)]), "app");
        assert_eq!(of("Basic cm9vdDo=").unwrap(), "root");
        assert_eq!(of("basic cm9vdDpwYXNzd29yZA==").unwrap(), "root");
        assert_eq!(of("Basic Og==").unwrap(), "app");
        assert_eq!(user(&HeaderMap::new(), "app").unwrap(), "app");
        for text in ["Bearer cm9vdDo=", "Basic", "Basic *", "Basic /w=="] {
            assert_eq!(of(text).map_err(|error| error.code), Err(Code::Unauthenticated), "{text}");
        }
    }
}
