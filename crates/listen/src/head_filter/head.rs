//! Checks the head of an HTTP/1 request. Uses hyper's parser and is stricter about framing (RFC 9112 section 6.3), so
//! that hyper accepts each head that passes.

use std::mem::MaybeUninit;

use axum::http::uri::Authority;
use axum::http::{HeaderValue, Uri};
use httparse::{Error, Header, Request, Status};

use crate::answers::{Fault, REQUEST_ID};
use crate::settings::MAX_HEADERS;

/// Whether a request needs a `Host` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostRule {
    Required,
    Any,
}

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// Whether a head is complete.
#[derive(Debug, PartialEq, Eq)]
pub enum HeadVerdict {
    Whole { bytes: usize, framing: Framing },
    Partial,
}

/// A refused head.
#[derive(Debug, PartialEq, Eq)]
pub struct RefusedHead {
    pub fault: Fault,
    pub request_id: Option<HeaderValue>,
    /// The response to a `HEAD` request has no body.
    pub bodiless: bool,
}

impl From<Fault> for RefusedHead {
    fn from(fault: Fault) -> Self {
        Self { fault, request_id: None, bodiless: false }
    }
}

/// Checks the bytes that have arrived so far.
pub fn check(bytes: &[u8], limit: usize, rule: HostRule) -> Result<HeadVerdict, RefusedHead> {
    let mut headers = [const { MaybeUninit::<Header<'_>>::uninit() }; MAX_HEADERS];
    let mut request = Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(bytes, &mut headers);
    let length = match parsed {
        Ok(Status::Complete(length)) if length <= limit => length,
        Ok(Status::Partial) if bytes.len() <= limit => return Ok(HeadVerdict::Partial),
        Ok(_) if bytes[..limit].contains(&b'\n') => return Err(Fault::HeadTooLong { limit }.into()),
        Ok(_) => return Err(Fault::TargetTooLong { limit }.into()),
        Err(Error::TooManyHeaders) => return Err(Fault::TooManyHeaders { limit: MAX_HEADERS }.into()),
        Err(e) => return Err(Fault::Malformed(reason(e)).into()),
    };
    let framing = check_request(&request, rule).map_err(|what| RefusedHead {
        fault: Fault::Malformed(what),
        request_id: only(&request, REQUEST_ID).and_then(|id| HeaderValue::from_bytes(id).ok()),
        bodiless: request.method == Some("HEAD"),
    })?;
    Ok(HeadVerdict::Whole { bytes: length, framing })
}

fn reason(error: Error) -> &'static str {
    match error {
        Error::HeaderName => "a header's name contains a character that is not allowed",
        Error::HeaderValue => "a header's value contains a character that is not allowed",
        Error::NewLine => "a line does not end in CR LF",
        Error::Token => "the request line is not METHOD TARGET VERSION",
        Error::Version => "the version is not HTTP/1.1 or HTTP/1.0",
        Error::TooManyHeaders | Error::Status => "its head cannot be read",
    }
}

fn check_request(request: &Request<'_, '_>, rule: HostRule) -> Result<Framing, &'static str> {
    let target = request.path.unwrap_or_default();
    if request.method == Some("CONNECT") {
        return Err("CONNECT is not supported: this service is not a proxy");
    }
    let uri = Uri::try_from(target).map_err(|_| "the target is not a valid path and query")?;
    let absolute = matches!(uri.scheme_str(), Some("http" | "https"));
    if !target.starts_with('/') && !absolute && target != "*" {
        return Err("the target does not begin with a slash");
    }
    let newest = request.version == Some(1);
    if rule == HostRule::Required {
        let mut hosts = values_of(request, "host");
        match (hosts.next(), hosts.next()) {
            (None, _) if newest => return Err("the Host header is missing"),
            (None, _) => {}
            (Some(_), Some(_)) => return Err("there is more than one Host header"),
            (Some(host), None) if !host.contains(&b'@') && Authority::try_from(host).is_ok() => {}
            (Some(_), None) => return Err("the Host header is not a host and a port"),
        }
    }
    framing(request, newest)
}

fn framing(request: &Request<'_, '_>, newest: bool) -> Result<Framing, &'static str> {
    let mut codings = values_of(request, "transfer-encoding");
    let mut lengths = values_of(request, "content-length");
    match (codings.next(), codings.next(), lengths.next(), lengths.next()) {
        (None, _, None, _) => Ok(Framing::Length(0)),
        (Some(coding), None, None, _) if newest && coding.eq_ignore_ascii_case(b"chunked") => {
            Ok(Framing::Chunked)
        }
        (Some(_), None, None, _) if !newest => Err("HTTP/1.0 has no Transfer-Encoding"),
        (Some(_), _, None, _) => Err("the only supported Transfer-Encoding is chunked"),
        (Some(_), _, Some(_), _) => Err("Transfer-Encoding and Content-Length exclude each other"),
        (None, _, Some(_), Some(_)) => Err("there is more than one Content-Length"),
        (None, _, Some(length), None) => {
            let text = std::str::from_utf8(length).ok();
            let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            // hyper reserves the two largest values.
            let length =
                digits.and_then(|digits| digits.parse().ok()).filter(|&length| length <= u64::MAX - 2);
            length.map(Framing::Length).ok_or("the Content-Length is not a valid number")
        }
    }
}

fn values_of<'a>(request: &'a Request<'_, '_>, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let headers: &'a [Header<'a>] = request.headers;
    headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name)).map(|header| header.value)
}

fn only<'a>(request: &'a Request<'_, '_>, name: &'a str) -> Option<&'a [u8]> {
    let mut all = values_of(request, name);
    all.next().filter(|_| all.next().is_none())
}

#[cfg(test)]
mod tests;
