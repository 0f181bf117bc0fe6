//! Who may use a sandbox's files and processes, and as which user.

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;

use super::connect::{Code, RpcError};

/// The user of requests that name none.
pub const DEFAULT_USER: &str = "user";
const TOKEN_HEADER: &str = "x-access-token";

/// The result of the check of the access token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCheck {
    Valid,
    Wrong,
    Missing,
}

/// Compares the access token of a request. A token that is sent twice is wrong. Without an expected token all is valid.
pub fn check_token(headers: &HeaderMap, expected: Option<&str>) -> TokenCheck {
    let Some(expected) = expected else { return TokenCheck::Valid };
    let mut sent = headers.get_all(TOKEN_HEADER).into_iter();
    match (sent.next(), sent.next()) {
        (None, _) => TokenCheck::Missing,
        (Some(token), None) if bool::from(token.as_bytes().ct_eq(expected.as_bytes())) => TokenCheck::Valid,
        _ => TokenCheck::Wrong,
    }
}

/// The user name of basic authentication, or the default. The password is ignored: the access token authenticates.
pub fn user(headers: &HeaderMap) -> Result<String, RpcError> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(DEFAULT_USER.to_owned()) };
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
    Ok(if name.is_empty() { DEFAULT_USER } else { name }.to_owned())
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
    fn a_token_must_be_sent_once_and_match() {
        let check = |pairs: &[(&'static str, &str)]| check_token(&headers(pairs), Some("secret"));
        assert_eq!(check(&[("x-access-token", "secret")]), TokenCheck::Valid);
        assert_eq!(check(&[]), TokenCheck::Missing);
        for wrong in ["", "secre", "Secret", "secretsecret"] {
            assert_eq!(check(&[("x-access-token", wrong)]), TokenCheck::Wrong, "{wrong}");
        }
        assert_eq!(check(&[("x-access-token", "secret"), ("x-access-token", "secret")]), TokenCheck::Wrong);
    }

    #[test]
    fn the_user_is_that_of_basic_authentication() {
        let of = |text: &str| user(&headers(&[("authorization", text)]));
        assert_eq!(of("Basic cm9vdDo=").unwrap(), "root");
        assert_eq!(of("basic cm9vdDpwYXNzd29yZA==").unwrap(), "root");
        assert_eq!(of("Basic Og==").unwrap(), DEFAULT_USER);
        assert_eq!(user(&HeaderMap::new()).unwrap(), DEFAULT_USER);
        for text in ["Bearer cm9vdDo=", "Basic", "Basic *", "Basic /w=="] {
            assert_eq!(of(text).map_err(|error| error.code), Err(Code::Unauthenticated), "{text}");
        }
    }
}
