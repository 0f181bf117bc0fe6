//! A response, and the checks that apply to all responses (docs/errors.md, docs/limits.md).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::HeaderMap;
use serde_json::Value;

pub const JSON: &str = "application/json; charset=utf-8";
/// The longest window of a rate limit, plus the error of clocks and rounding.
const RESET_WITHIN_S: u64 = 63;

/// A complete response.
#[derive(Debug, Clone)]
pub struct HttpResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// From the request to the end of the response.
    pub took: Duration,
}

impl HttpResponse {
    /// The value of a header that occurs exactly once.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    pub fn number(&self, name: &str) -> Result<u64> {
        number(&self.headers, name)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The body of a response that must have this status.
    pub fn is(&self, status: u16) -> Result<Value> {
        ensure!(self.status == status, "status {} instead of {status}: {}", self.status, self.text());
        self.json()
    }

    /// The error object of a response that must be this error.
    pub fn error(&self, status: u16, code: &str) -> Result<Value> {
        let error = self.is(status)?["error"].take();
        ensure!(error["code"] == code, "code {} instead of {code}: {}", error["code"], self.text());
        Ok(error)
    }

    /// Checks what applies to all responses.
    pub fn check(&self) -> Result<()> {
        self.check_headers()
            .with_context(|| format!("{} {:?}: {}", self.status, self.headers, self.text()))?;
        if self.status >= 400 {
            self.check_error().with_context(|| format!("{}: {}", self.status, self.text()))?;
        }
        Ok(())
    }

    fn check_headers(&self) -> Result<()> {
        check_common(&self.headers, self.took)?;
        let content_type = self.header("content-type").context("no content type")?;
        let page = self.status == 200
            && (content_type.starts_with("text/html")
                || content_type.starts_with("text/css")
                || content_type.starts_with("text/javascript"));
        let content = matches!(self.status, 200 | 206)
            && matches!(content_type, "application/octet-stream" | "application/x-tar");
        ensure!(content_type == JSON || page || content || self.status == 301, "content type {content_type}");
        if matches!(self.status, 429 | 503) {
            ensure!(self.number("retry-after")? >= 1, "Retry-After of less than a second");
        }
        if self.status == 405 {
            ensure!(self.header("allow").is_some_and(|allow| !allow.is_empty()), "405 without Allow");
        }
        Ok(())
    }

    fn check_error(&self) -> Result<()> {
        let body = self.json()?;
        let error = body["error"].as_object().context("no error object")?;
        let keys: Vec<&str> = error.keys().map(String::as_str).collect();
        ensure!(
            keys == ["code", "details", "message", "requestId"],
            "the error object has the keys {keys:?}"
        );
        ensure!(
            body.as_object().is_some_and(|body| body.len() == 1),
            "the body has more than the error object"
        );
        ensure!(error["details"].is_object(), "details is not an object");
        ensure!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "no message");
        ensure!(
            error["requestId"].as_str() == self.header("x-request-id"),
            "requestId differs from X-Request-Id"
        );
        let code: api::ErrorCode = error["code"].as_str().unwrap_or_default().parse().context("code")?;
        let too_much =
            matches!(self.status, 413 | 414 | 416 | 426 | 431) && code == api::ErrorCode::InvalidRequest;
        ensure!(code.status() == self.status || too_much, "{code} with status {}", self.status);
        ensure!(self.status != 500, "an internal error of the server");
        Ok(())
    }
}

/// Checks that apply to responses and streams. The rate limit window is that of the request's start, which may be over.
pub(super) fn check_common(headers: &HeaderMap, took: Duration) -> Result<()> {
    let id = header(headers, "x-request-id").context("X-Request-Id does not occur exactly once")?;
    ensure!(!id.is_empty() && id.len() <= 128, "X-Request-Id is {id:?}");
    let limit = number(headers, "x-ratelimit-limit")?;
    let remaining = number(headers, "x-ratelimit-remaining")?;
    ensure!(
        limit >= 1 && remaining <= limit,
        "X-RateLimit-Remaining is {remaining}, X-RateLimit-Limit is {limit}"
    );
    let reset = number(headers, "x-ratelimit-reset")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let earliest = now - 5 - took.as_secs();
    ensure!((earliest..=now + RESET_WITHIN_S).contains(&reset), "X-RateLimit-Reset is {reset} at {now}");
    Ok(())
}

pub(super) fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut all = headers.get_all(name).iter();
    let only = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(only)
}

pub(super) fn number(headers: &HeaderMap, name: &str) -> Result<u64> {
    let text = header(headers, name).with_context(|| format!("{name} does not occur exactly once"))?;
    text.parse().with_context(|| format!("{name} is {text:?}"))
}
