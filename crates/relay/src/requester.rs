//! Error responses in place of a program's response: JSON for programs, a page for browsers. Both forbid caching.

use admission::error::ApiError;
use api::ErrorCode;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::response::Response;

use super::Id;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const CONTENT_SECURITY_POLICY: HeaderName = HeaderName::from_static("content-security-policy");

/// The properties of a request that decide the form of an error response.
pub struct Requester {
    pub id: Id,
    /// Whether it is a browser that shows a page.
    pub is_browser: bool,
    is_head: bool,
}

impl Requester {
    pub fn of(request: &Request) -> Self {
        let is_head = request.method() == Method::HEAD;
        let reads = is_head || request.method() == Method::GET;
        let is_browser = reads && wants_page(request.headers());
        Self { id: Id::of(request.headers()), is_browser, is_head }
    }

    pub fn refuse(&self, error: &ApiError) -> Response {
        let status = error.status();
        let (kind, text) = if self.is_browser {
            ("text/html; charset=utf-8", page(error, &self.id).into_bytes())
        } else {
            ("application/json; charset=utf-8", error.body(&self.id.0))
        };
        let length = text.len();
        let mut response = Response::new(if self.is_head { Body::empty() } else { Body::from(text) });
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
        );
        headers.insert(REQUEST_ID, self.id.header_value());
        if error.code == ErrorCode::Unauthorized {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = error.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

fn wants_page(headers: &HeaderMap) -> bool {
    headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains("text/html")))
}

fn page(error: &ApiError, id: &Id) -> String {
    let (status, message) = (error.status(), escaped(&error.message));
    let title = escaped(status.canonical_reason().unwrap_or("Error"));
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{code} {title}</title>\n<style>body{{font:16px/1.5 sans-serif;max-width:40rem;margin:15vh auto;padding:0 1rem}}\
         code{{color:#666}}</style>\n<h1>{title}</h1>\n<p>{message}</p>\n<p><code>{name} {id}</code></p>\n</html>\n",
        code = status.as_u16(),
        name = error.code,
        id = escaped(&id.0),
    )
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use api::ErrorBody;
    use http_body_util::BodyExt;

    use super::*;

    fn requester(method: &str, accept: &str) -> Requester {
        Requester::of(
            &Request::builder().method(method).header("accept", accept).body(Body::empty()).unwrap(),
        )
    }

    #[tokio::test]
    async fn people_get_a_page_and_programs_the_error() {
        let error = || ApiError::new(ErrorCode::PortUnreachable, "nothing <listens> & \"waits\"");
        let answer = requester("GET", "text/html,*/*").refuse(&error());
        assert_eq!(
            (answer.status().as_u16(), answer.headers()[CACHE_CONTROL].as_bytes()),
            (502, &b"no-store"[..])
        );
        let page =
            String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
        assert!(
            page.contains("nothing &lt;listens&gt; &amp; &quot;waits&quot;")
                && page.contains("PORT_UNREACHABLE")
        );
        for requester in [requester("GET", "*/*"), requester("POST", "text/html")] {
            let answer = requester.refuse(&error());
            let id = answer.headers()[REQUEST_ID].to_str().unwrap().to_owned();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            let body: ErrorBody = serde_json::from_slice(&body).unwrap();
            assert_eq!((body.error.code, body.error.request_id), (ErrorCode::PortUnreachable, id));
        }
        let answer = requester("HEAD", "*/*").refuse(&error());
        assert!(answer.headers()[CONTENT_LENGTH] != "0");
        assert!(answer.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}
