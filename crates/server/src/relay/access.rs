//! Who may come through a port. Everything that lets somebody in is taken out of the request on the way, good or bad, so that the
//! program inside never sees it.
//!
//! A key and a token are looked at when a request begins. What goes on after it, a websocket say, ends with the exposure and not with
//! them.

use std::time::{SystemTime, UNIX_EPOCH};

use api::{ErrorCode, PortVisibility};
use axum::http::header::{AUTHORIZATION, COOKIE, LOCATION, REFERER, SEC_WEBSOCKET_PROTOCOL, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use engine::Exposure;
use rules::{Scope, TimeMs};

use super::Id;
use super::cookies::{PLAIN_COOKIE, SAFE_COOKIE, is_ours};
use super::heads::Forwarded;
use super::origin;
use super::refusal::{Asker, REQUEST_ID};
use crate::error::{ApiError, nobody};
use crate::service::Service;

pub const TOKEN: HeaderName = HeaderName::from_static("x-sandbox-token");
const QUERY: &str = "sandbox_token";
/// What every key begins with.
const KEY_MARK: &str = "sbk_";
/// Of tokens that one request brings, so many are looked at.
const MOST_TOKENS: usize = 4;

/// What becomes of a request that may pass.
pub enum Let {
    In,
    /// A browser is to ask again, without the token in the address.
    Redirect(Response),
}

/// What a request brought.
#[derive(Default)]
struct Brought {
    key: Option<String>,
    /// From the address.
    asked: Option<String>,
    tokens: Vec<String>,
    /// Tokens in cookies, which a browser sends whoever asks.
    cookies: Vec<String>,
}

/// Takes out of the request what it brought, and says whether it may pass.
pub async fn look(
    service: &Service,
    exposure: &Exposure,
    parts: &mut Parts,
    forwarded: &Forwarded,
    asker: &Asker,
) -> Result<Let, ApiError> {
    let by_cookie =
        origin::may_use_cookies(&parts.method, &parts.headers, &forwarded.scheme, &forwarded.host);
    let brought = take(parts);
    if exposure.port.visibility == PortVisibility::Public {
        return Ok(Let::In);
    }
    let opens = |token: &String| {
        let until = service.ports.opens(token, &exposure.record.id, &exposure.port, now())?;
        Some((token.clone(), until))
    };
    if let Some((token, until)) = brought.asked.as_ref().and_then(opens) {
        if asker.is_browser {
            return Ok(Let::Redirect(redirect(parts, forwarded, &token, until)));
        }
        return Ok(Let::In);
    }
    let lets_in = |tokens: &[String]| tokens.iter().take(MOST_TOKENS).any(|token| opens(token).is_some());
    if lets_in(&brought.tokens) || (by_cookie && lets_in(&brought.cookies)) {
        return Ok(Let::In);
    }
    match &brought.key {
        Some(key) => by_key(service, exposure, key).await.map(|()| Let::In),
        None if !by_cookie && lets_in(&brought.cookies) => Err(unauthorized(
            "another page asked for this, and the cookie of this port is for its own pages; send the token in the header X-Sandbox-Token",
        )),
        None if brought.asked.is_some() || !brought.tokens.is_empty() || !brought.cookies.is_empty() => {
            Err(unauthorized(
                "the token is not good for this port: it has expired, or the port was closed or exposed anew since",
            ))
        }
        None => Err(unauthorized(
            "this port is private; open it with a token ('sbx open' makes one), or send an API key of its account",
        )),
    }
}

async fn by_key(service: &Service, exposure: &Exposure, key: &str) -> Result<(), ApiError> {
    let mut caller = service.keyring.find(key);
    // It may have been made a moment ago.
    if caller.is_none() && service.keyring.look_again(key, service.store.as_ref()).await {
        caller = service.keyring.find(key);
    }
    let caller = caller.ok_or_else(|| unauthorized("the API key is not valid"))?;
    if *caller.account != *exposure.record.account {
        // What is another account's does not exist for it.
        return Err(nobody());
    }
    if !caller.scopes.allows(Scope::Execute) {
        let message = format!(
            "the key has the scopes {}; a private port needs 'execute', use a key that has it",
            caller.scopes
        );
        return Err(
            ApiError::new(ErrorCode::Forbidden, message).with_detail("scope", Scope::Execute.as_str())
        );
    }
    Ok(())
}

fn unauthorized(message: &str) -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, message)
}

fn take(parts: &mut Parts) -> Brought {
    let mut brought = Brought { key: take_key(&mut parts.headers), ..Brought::default() };
    drop_key_protocols(&mut parts.headers);
    let headers = parts.headers.get_all(TOKEN).iter();
    brought.tokens.extend(headers.filter_map(|value| value.to_str().ok()).map(str::to_owned));
    parts.headers.remove(TOKEN);
    take_cookies(&mut parts.headers, &mut brought.cookies);
    if let Some((uri, token)) = take_query(&parts.uri) {
        parts.uri = uri;
        brought.asked = Some(token);
    }
    let refers = parts.headers.get(REFERER).is_some_and(|value| contains(value, QUERY));
    if refers {
        parts.headers.remove(REFERER);
    }
    brought
}

fn contains(value: &HeaderValue, text: &str) -> bool {
    value.as_bytes().windows(text.len()).any(|part| part == text.as_bytes())
}

/// A key of ours goes; what a program of its own asks for in this header stays.
fn take_key(headers: &mut HeaderMap) -> Option<String> {
    let values: Vec<HeaderValue> = headers.get_all(AUTHORIZATION).iter().cloned().collect();
    if !values.iter().any(|value| contains(value, KEY_MARK)) {
        return None;
    }
    headers.remove(AUTHORIZATION);
    let mut key = None;
    for value in values {
        if !contains(&value, KEY_MARK) {
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

/// The interface takes keys among the subprotocols of a websocket; here nobody inside may see one that was sent to the wrong place.
fn drop_key_protocols(headers: &mut HeaderMap) {
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
    if !offered.iter().any(|protocol| protocol.contains(KEY_MARK)) {
        return;
    }
    let kept: Vec<&str> = offered.into_iter().filter(|protocol| !protocol.contains(KEY_MARK)).collect();
    let kept = HeaderValue::from_str(&kept.join(", "));
    headers.remove(SEC_WEBSOCKET_PROTOCOL);
    // Made of parts of values, so it is one.
    if let Ok(kept) = kept
        && !kept.is_empty()
    {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

/// Puts all others into one header: HTTP/2 has them apart, HTTP/1.1 may not.
fn take_cookies(headers: &mut HeaderMap, tokens: &mut Vec<String>) {
    if !headers.contains_key(COOKIE) {
        return;
    }
    let mut kept: Vec<u8> = Vec::new();
    for value in headers.get_all(COOKIE) {
        for cookie in value.as_bytes().split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
            let mut halves = cookie.splitn(2, |byte| *byte == b'=');
            let (name, value) = (halves.next().unwrap_or_default(), halves.next());
            if is_ours(name) {
                tokens.extend(value.and_then(|value| std::str::from_utf8(value).ok()).map(str::to_owned));
            } else if !cookie.is_empty() {
                if !kept.is_empty() {
                    kept.extend_from_slice(b"; ");
                }
                kept.extend_from_slice(cookie);
            }
        }
    }
    headers.remove(COOKIE);
    // Made of parts of values, so it is one.
    if let (false, Ok(value)) = (kept.is_empty(), HeaderValue::from_bytes(&kept)) {
        headers.insert(COOKIE, value);
    }
}

/// The target without tokens, and the first of them.
fn take_query(uri: &Uri) -> Option<(Uri, String)> {
    let query = uri.query().filter(|query| query.contains(QUERY))?;
    let token_of = |pair: &str| pair.strip_prefix(QUERY)?.strip_prefix('=').map(str::to_owned);
    let token = query.split('&').find_map(token_of)?;
    let kept: Vec<&str> = query.split('&').filter(|pair| token_of(pair).is_none()).collect();
    let target =
        if kept.is_empty() { uri.path().to_owned() } else { format!("{}?{}", uri.path(), kept.join("&")) };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(target).ok()?);
    Some((Uri::from_parts(parts).ok()?, token))
}

/// The same address without the token, which a cookie has from here on. With its host, for a path may look like one.
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

fn now() -> TimeMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn taken(uri: &str, headers: &[(&str, &str)]) -> (Parts, Brought) {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        let brought = take(&mut parts);
        (parts, brought)
    }

    #[test]
    fn what_lets_somebody_in_is_taken_out() {
        let (parts, brought) = taken(
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
        assert_eq!(brought.key.as_deref(), Some("sbk_key"));
        assert_eq!(brought.asked.as_deref(), Some("spt_q"));
        assert_eq!(brought.tokens, ["spt_h"]);
        assert_eq!(brought.cookies, ["spt_c", "spt_d"]);
        let left: Vec<_> =
            parts.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(left, [("cookie", "a=1; b=2; c")]);
    }

    #[test]
    fn what_is_the_programs_own_stays() {
        let (parts, brought) = taken(
            "/a?token=1&sandbox_tokens=2",
            &[("authorization", "Basic dTpw"), ("cookie", "session=1"), ("referer", "https://h/")],
        );
        assert_eq!(parts.uri, "/a?token=1&sandbox_tokens=2");
        assert!(brought.key.is_none() && brought.asked.is_none() && brought.tokens.is_empty());
        assert_eq!(parts.headers.len(), 3);
        let (parts, brought) =
            taken("/", &[("authorization", "Token sbk_x"), ("authorization", "Basic dTpw")]);
        assert!(brought.key.is_none());
        assert_eq!(parts.headers.get_all(AUTHORIZATION).iter().collect::<Vec<_>>(), ["Basic dTpw"]);
        let (parts, _) = taken("/?sandbox_token=spt_q", &[]);
        assert_eq!(parts.uri, "/");
    }
}
