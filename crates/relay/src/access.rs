//! Authorizes requests for a port. Every credential is removed from the request, valid or not, so that the program never gets it.
//!
//! Keys and tokens are checked when a request begins. A websocket ends when the port is closed, not when its token expires.

use admission::endpoint::Rule;
use admission::error::ApiError;
use admission::wall_clock::now;
use api::{ErrorCode, PortVisibility};
use axum::http::header::{AUTHORIZATION, COOKIE, LOCATION, REFERER, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use engine::Exposure;
use rules::{Scope, TimeMs};
use service::Service;
use service::error::unknown_host;

use super::Id;
use super::cookies::{PLAIN_COOKIE, SAFE_COOKIE, is_ours};
use super::heads::Forwarded;
use super::origin;
use super::requester::{REQUEST_ID, Requester};
use super::secrets::{holds_secret, percent_decoded};

pub const TOKEN: HeaderName = HeaderName::from_static("x-sandbox-token");
const QUERY: &str = "sandbox_token";
/// The prefix of every key.
const KEY_MARK: &str = "sbk_";
/// The most tokens of one request that are checked.
const MOST_TOKENS: usize = 4;

/// A port that everybody may use. Its program is not the service's: the limits of ports count its connections.
pub const PUBLIC_PORT: Rule = Rule { route: "public port", access: admission::endpoint::Access::Open };
/// A port that needs a token, or a key with the scope.
pub const PRIVATE_PORT: Rule = Rule {
    route: "private port",
    access: admission::endpoint::Access::Token { scope: Scope::Execute, charge: None },
};

/// What a request for a port needs.
const fn rule_of(visibility: PortVisibility) -> Rule {
    match visibility {
        PortVisibility::Public => PUBLIC_PORT,
        PortVisibility::Private => PRIVATE_PORT,
    }
}

/// What happens to a request that is allowed.
pub enum Access {
    Allowed,
    /// A browser repeats the request without the token in the URL.
    Redirect(Response),
}

/// The credentials of a request.
#[derive(Default)]
struct Credentials {
    key: Option<String>,
    /// From the URL.
    query_token: Option<String>,
    tokens: Vec<String>,
    /// Tokens in cookies, which a browser sends with requests from any page.
    cookies: Vec<String>,
}

/// Removes credentials from the request and decides whether it may pass. A key in the path or the method cannot be removed, so
/// such a request is refused.
pub async fn authorize(
    service: &Service,
    exposure: &Exposure,
    parts: &mut Parts,
    forwarded: &Forwarded,
    requester: &Requester,
) -> Result<Access, ApiError> {
    let by_cookie =
        origin::may_use_cookies(&parts.method, &parts.headers, &forwarded.scheme, &forwarded.host);
    let credentials = take_credentials(parts);
    if holds_secret(parts.uri.path().as_bytes()) || holds_secret(parts.method.as_str().as_bytes()) {
        let message = "the path contains an API key or a token, which would be passed to the program; send a key in the header Authorization, a token in the header X-Sandbox-Token";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message));
    }
    if rule_of(exposure.port.visibility).access.scope().is_none() {
        return Ok(Access::Allowed);
    }
    let opens = |token: &String| {
        let until = service.ports.opens(token, &exposure.record.id, &exposure.port, now())?;
        Some((token.clone(), until))
    };
    if let Some((token, until)) = credentials.query_token.as_ref().and_then(opens) {
        if requester.is_browser {
            return Ok(Access::Redirect(redirect(parts, forwarded, &token, until)));
        }
        return Ok(Access::Allowed);
    }
    let is_valid_token =
        |tokens: &[String]| tokens.iter().take(MOST_TOKENS).any(|token| opens(token).is_some());
    if is_valid_token(&credentials.tokens) || (by_cookie && is_valid_token(&credentials.cookies)) {
        return Ok(Access::Allowed);
    }
    match &credentials.key {
        Some(key) => by_key(service, exposure, key).await.map(|()| Access::Allowed),
        None if !by_cookie && is_valid_token(&credentials.cookies) => Err(unauthorized(
            "the request comes from another page, but the token cookie is valid only for pages of this port; send the token in the header X-Sandbox-Token",
        )),
        None if credentials.query_token.is_some()
            || !credentials.tokens.is_empty()
            || !credentials.cookies.is_empty() =>
        {
            Err(unauthorized(
                "the token is not valid for this port: it has expired, or the port was closed or exposed again",
            ))
        }
        None => Err(unauthorized(
            "this port is private; send a token (create one with 'sbx open'), or an API key of its account",
        )),
    }
}

async fn by_key(service: &Service, exposure: &Exposure, key: &str) -> Result<(), ApiError> {
    let caller = service.gate.authenticate(key).await;
    let caller = caller.map_err(|invalid| unauthorized(&invalid.to_string()))?;
    // Requests for ports have no line in the log, which notes the others.
    service.gate.key_uses.note(&caller.key_id, now());
    if *caller.account != *exposure.record.account {
        // Sandboxes of other accounts do not exist for this one.
        return Err(unknown_host());
    }
    if let Some(scope) = PRIVATE_PORT.access.scope()
        && !caller.scopes.allows(scope)
    {
        let message = format!("the key has the scopes {}; a private port needs '{scope}'", caller.scopes);
        return Err(ApiError::new(ErrorCode::Forbidden, message).with_detail("scope", scope.as_str()));
    }
    Ok(())
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message)
}

fn take_credentials(parts: &mut Parts) -> Credentials {
    let mut credentials = Credentials { key: take_key(&mut parts.headers), ..Credentials::default() };
    drop_key_protocols(&mut parts.headers);
    let headers = parts.headers.get_all(TOKEN).iter();
    credentials.tokens.extend(headers.filter_map(|value| value.to_str().ok()).map(str::to_owned));
    parts.headers.remove(TOKEN);
    take_cookies(&mut parts.headers, &mut credentials.cookies);
    if let Some((uri, token)) = take_query(&parts.uri) {
        parts.uri = uri;
        credentials.query_token = token;
    }
    let refers = parts.headers.get_all(REFERER).iter().any(|value| {
        let decoded = percent_decoded(value.as_bytes());
        contains(value.as_bytes(), QUERY) || decoded.is_some_and(|value| contains(&value, QUERY))
    });
    if refers {
        parts.headers.remove(REFERER);
    }
    credentials
}

fn contains(value: &[u8], text: &str) -> bool {
    value.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Removes a key of this service in any form. What the program itself asks for in this header stays.
fn take_key(headers: &mut HeaderMap) -> Option<String> {
    let values: Vec<HeaderValue> = headers.get_all(AUTHORIZATION).iter().cloned().collect();
    let is_ours =
        |value: &HeaderValue| contains(value.as_bytes(), KEY_MARK) || holds_secret(value.as_bytes());
    if !values.iter().any(is_ours) {
        return None;
    }
    headers.remove(AUTHORIZATION);
    let mut key = None;
    for value in values {
        if !is_ours(&value) {
            headers.append(AUTHORIZATION, value);
            continue;
        }
        let text = value.to_str().ok().and_then(|text| text.split_once(' '));
        key = text
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, key)| key.trim().to_owned());
    }
    key
}

/// Removes keys from the subprotocols of a websocket, where the API takes them; a client may send one to a port by mistake.
fn drop_key_protocols(headers: &mut HeaderMap) {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
    let is_ours = |protocol: &&str| protocol.contains(KEY_MARK) || holds_secret(protocol.as_bytes());
    if !offered.iter().any(is_ours) {
        return;
    }
    let remaining: Vec<&str> = offered.into_iter().filter(|protocol| !is_ours(protocol)).collect();
    let remaining = HeaderValue::from_str(&remaining.join(", "));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    // Made from parts of header values, so it is a valid value.
    if let Ok(remaining) = remaining
        && !remaining.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, remaining);
    }
}

/// Takes the cookies that hold tokens, drops those that hold a key, and joins the rest in one header: HTTP/2 may send several, HTTP/1.1
/// only one.
fn take_cookies(headers: &mut HeaderMap, tokens: &mut Vec<String>) {
    if !headers.contains_key(COOKIE) {
        return;
    }
    let mut remaining: Vec<u8> = Vec::new();
    for value in headers.get_all(COOKIE) {
        for cookie in value.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
            let mut halves = cookie.splitn(2, |byte| *byte == b'=');
            let (name, value) = (halves.next().unwrap_or_default(), halves.next());
            if is_ours(name) {
                tokens.extend(value.and_then(|value| std::str::from_utf8(value).ok()).map(str::to_owned));
            } else if !cookie.is_empty() && !holds_secret(cookie) {
                if !remaining.is_empty() {
                    remaining.extend_from_slice(b"; ");
                }
                remaining.extend_from_slice(cookie);
            }
        }
    }
    headers.remove(COOKIE);
    // Made from parts of header values, so it is a valid value.
    if let (false, Ok(value)) = (remaining.is_empty(), HeaderValue::from_bytes(&remaining)) {
        headers.insert(COOKIE, value);
    }
}

/// The target without the pairs of its query that hold a token or a key, and the first token. `None` if there is no such pair.
fn take_query(uri: &Uri) -> Option<(Uri, Option<String>)> {
    let query = uri.query()?;
    let token_of = |pair: &str| {
        let decoded = percent_decoded(pair.as_bytes()).unwrap_or_else(|| pair.as_bytes().to_vec());
        let token = String::from_utf8(decoded).ok()?.strip_prefix(QUERY)?.strip_prefix('=')?.to_owned();
        Some(token)
    };
    let is_secret = |pair: &&str| token_of(pair).is_some() || holds_secret(pair.as_bytes());
    if !query.split('&').any(|pair| is_secret(&pair)) {
        return None;
    }
    let token = query.split('&').find_map(token_of);
    let remaining: Vec<&str> = query.split('&').filter(|pair| !is_secret(pair)).collect();
    let target = if remaining.is_empty() {
        uri.path().to_owned()
    } else {
        format!("{}?{}", uri.path(), remaining.join("&"))
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Some((Uri::from_parts(parts).ok()?, token))
}

/// Redirects to the same URL without the token and sets the token cookie. The URL has its host, because a path such as `//x` looks like
/// one.
fn redirect(parts: &Parts, forwarded: &Forwarded, token: &str, until: TimeMs) -> Response {
    let mut response = Response::new(axum::body::Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let path = parts.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let location = format!("{}://{}{path}", forwarded.scheme, forwarded.host);
    let seconds = until.since(now()) / 1000;
    let (name, secure) =
        if forwarded.scheme == "https" { (SAFE_COOKIE, "; Secure") } else { (PLAIN_COOKIE, "") };
    let cookie = format!("{name}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, Id::of(&parts.headers).header_value());
    let fixed = [("cache-control", "no-store"), ("referrer-policy", "no-referrer")];
    for (name, value) in fixed {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    for (name, value) in [(LOCATION, location), (SET_COOKIE, cookie)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn take_from(uri: &str, headers: &[(&str, &str)]) -> (Parts, Credentials) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        let credentials = take_credentials(&mut parts);
        (parts, credentials)
    }

    #[test]
    fn credentials_are_removed() {
        let (parts, credentials) = take_from(
            "/a?x=1&sandbox_token=spt_q&y=2&sandbox_token=again",
            &[
                ("authorization", "Bearer sbk_key"),
                ("x-sandbox-token", "spt_h"),
                ("cookie", "a=1; __Host-sandbox-token=spt_c;b=2"),
                ("cookie", "sandbox-token=spt_d; c"),
                ("referer", "https://h/?sandbox_token=spt_q"),
            ],
        );
        assert_eq!(parts.uri, "/a?x=1&y=2");
        assert_eq!(credentials.key.as_deref(), Some("sbk_key"));
        assert_eq!(credentials.query_token.as_deref(), Some("spt_q"));
        assert_eq!(credentials.tokens, ["spt_h"]);
        assert_eq!(credentials.cookies, ["spt_c", "spt_d"]);
        let left: Vec<_> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(left, [("cookie", "a=1; b=2; c")]);
    }

    #[test]
    fn keys_are_removed_in_any_form() {
        use super::super::secrets::tests::{KEY, base64, percent};
        let (basic_user, basic_password) =
            (base64(format!("{KEY}:").as_bytes()), base64(format!("user:{KEY}").as_bytes()));
        let uri = format!("/a?x=1&key={KEY}&k={}&b={basic_user}&sandbox%5Ftoken=spt_q&y=2", percent(KEY));
        let (parts, credentials) = take_from(
            &uri,
            &[
                ("authorization", &format!("Basic {basic_user}")),
                ("authorization", &format!("Basic {basic_password}")),
                ("authorization", "Basic dXNlcjpwYXNzd29yZA=="),
                ("cookie", &format!("key={KEY}; a=1; k={}", percent(KEY))),
                ("cookie", &format!("b={basic_password}")),
                ("sec-websocket-protocol", &format!("chat, bearer.{KEY}, {basic_user}")),
                ("referer", &format!("https://h/?sandbox%5ftoken={KEY}")),
            ],
        );
        assert_eq!(parts.uri, "/a?x=1&y=2");
        assert_eq!(
            (credentials.key, credentials.query_token.as_deref()),
            (None, Some("spt_q")),
            "only a bearer key lets in"
        );
        let left: Vec<_> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        for kept in [
            ("authorization", "Basic dXNlcjpwYXNzd29yZA=="),
            ("cookie", "a=1"),
            ("sec-websocket-protocol", "chat"),
        ] {
            assert!(left.contains(&kept), "{left:?}");
        }
    }

    #[test]
    fn credentials_of_the_program_are_forwarded() {
        let (parts, credentials) = take_from(
            "/a?token=1&sandbox_tokens=2",
            &[("authorization", "Basic dTpw"), ("cookie", "session=1"), ("referer", "https://h/")],
        );
        assert_eq!(parts.uri, "/a?token=1&sandbox_tokens=2");
        assert!(
            credentials.key.is_none() && credentials.query_token.is_none() && credentials.tokens.is_empty()
        );
        assert_eq!(parts.headers.len(), 3);
        let (parts, credentials) =
            take_from("/", &[("authorization", "Token sbk_x"), ("authorization", "Basic dTpw")]);
        assert!(credentials.key.is_none());
        assert_eq!(parts.headers.get_all(AUTHORIZATION).iter().collect::<Vec<_>>(), ["Basic dTpw"]);
        let (parts, _) = take_from("/?sandbox_token=spt_q", &[]);
        assert_eq!(parts.uri, "/");
    }
}
