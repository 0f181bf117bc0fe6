//! The error type of the library. A call that fails leaves nothing behind in the client; the service may have carried out the
//! request.

mod code;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};

pub use code::Code;

/// The result of every call.
///
/// ```
/// async fn images(client: &sandboxd_client::Client) -> sandboxd_client::Result<Vec<String>> {
///     Ok(client.list().page(0).await?.data.into_iter().map(|item| item.image).collect())
/// }
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. Clones are cheap. The message contains the text of the cause, which `source` returns.
///
/// ```
/// use sandboxd_client::Code;
/// # sandboxd::testing::with_client(async |client| {
/// let error = client.get("sb_00000000").await.unwrap_err();
/// match error.code() {
///     Code::SandboxNotFound => assert_eq!(error.details()["sandboxId"], "sb_00000000"),
///     Code::NetworkError => println!("is the service there?"),
///     other => println!("{other}: {error}"),
/// }
/// assert_eq!(error.status(), Some(404));
/// assert!(!error.retryable());
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
pub struct Error(Arc<ErrorFields>);

#[derive(Debug, Clone)]
struct ErrorFields {
    code: Code,
    name: String,
    message: String,
    status: Option<u16>,
    details: Map<String, Value>,
    request_id: Option<String>,
    retry_after: Option<Duration>,
    /// Attempts before the one that failed with this error.
    repeats: u32,
    /// How long the call had waited for limits.
    waited: Duration,
    /// The service has not begun to carry out the call.
    is_unstarted: bool,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// An error body. A newer service may use codes that this version does not know.
#[derive(Debug, Deserialize)]
struct Body {
    error: Object,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    code: String,
    message: String,
    #[serde(default)]
    details: Map<String, Value>,
    #[serde(default)]
    request_id: Option<String>,
}

impl Error {
    fn new(code: Code, message: String) -> Self {
        let name = code.as_str().to_owned();
        Self(Arc::new(ErrorFields {
            code,
            name,
            message,
            status: None,
            details: Map::new(),
            request_id: None,
            retry_after: None,
            repeats: 0,
            waited: Duration::ZERO,
            is_unstarted: false,
            source: None,
        }))
    }

    /// The service was not reached, or its response did not arrive.
    pub(crate) fn network(message: impl Into<String>) -> Self {
        Self::new(Code::NetworkError, message.into())
    }

    /// The client cannot send the call with its settings.
    pub(crate) fn configuration(message: impl Into<String>) -> Self {
        Self::new(Code::Configuration, message.into())
    }

    /// An argument of the call is malformed.
    pub(crate) fn argument(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message.into()).with_detail("argument", name)
    }

    pub(crate) fn with_detail(mut self, name: &str, value: &str) -> Self {
        self.change(|inner| drop(inner.details.insert(name.to_owned(), value.into())));
        self
    }

    /// Appends the text of the cause to the message.
    pub(crate) fn caused_by(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause = cause.into();
        let text = with_sources(&*cause);
        self.change(|inner| inner.message = format!("{}: {text}", inner.message));
        self.with_source(cause)
    }

    /// Sets a cause whose text is in the message already, or would not help the user.
    pub(crate) fn with_source(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.change(|inner| inner.source = Some(Arc::from(cause.into())));
        self
    }

    /// A file of this machine caused the error, not the service.
    pub(crate) fn local(path: &std::path::Path, error: std::io::Error) -> Self {
        Self::new(Code::LocalFile, path.display().to_string()).caused_by(error)
    }

    pub(crate) fn local_content(message: impl Into<String>) -> Self {
        Self::new(Code::LocalFile, message.into())
    }

    /// The response is not one of a sandboxd service that this version understands.
    pub(crate) fn unknown(status: u16, message: impl Into<String>, request_id: Option<String>) -> Self {
        let mut error = Self::new(Code::Unknown, message.into());
        error.change(|inner| (inner.status, inner.request_id) = (Some(status), request_id));
        error
    }

    /// The error of a response with status 400 or above. The request id of the header is used if the body has none.
    pub(crate) fn of_answer(
        status: u16,
        body: &[u8],
        request_id: Option<String>,
        retry_after: Option<Duration>,
    ) -> Self {
        let mut error = match serde_json::from_slice::<Body>(body) {
            Ok(body) => Self::of_object(body.error),
            Err(_) => {
                Self::unknown(status, format!("status {status} without an error body of the service"), None)
            }
        };
        error.change(|inner| {
            inner.status = Some(status);
            inner.retry_after = retry_after;
            inner.request_id = inner.request_id.take().or(request_id);
        });
        error
    }

    /// The error of a stream's `error` event, with the status that belongs to its code.
    pub(crate) fn of_event(data: &str) -> Option<Self> {
        let object = serde_json::from_str::<Object>(data).ok()?;
        let status = object.code.parse().ok().map(api::ErrorCode::status);
        let mut error = Self::of_object(object);
        error.change(|inner| inner.status = status);
        Some(error)
    }

    fn of_object(object: Object) -> Self {
        let mut error = Self::new(Code::of(&object.code), object.message);
        error.change(|inner| {
            inner.name = object.code;
            inner.details = object.details;
            inner.request_id = object.request_id;
        });
        error
    }

    pub(crate) fn after(mut self, repeats: u32, waited: Duration) -> Self {
        self.change(|inner| (inner.repeats, inner.waited) = (repeats, waited));
        self
    }

    /// The service has not begun to carry out the call.
    pub(crate) fn unstarted(mut self) -> Self {
        self.change(|inner| inner.is_unstarted = true);
        self
    }

    fn change(&mut self, change: impl FnOnce(&mut ErrorFields)) {
        change(Arc::make_mut(&mut self.0));
    }

    /// The code, to match on.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.create("ubuntu:24.04").cpu(3).await.unwrap_err();
    /// assert_eq!(error.code(), sandboxd_client::Code::InvalidConfig);
    /// # Ok(()) });
    /// ```
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The code as the service sent it, even if this version does not know it.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.create("ubuntu:24.04").cpu(3).await.unwrap_err();
    /// assert_eq!(error.code_name(), "INVALID_CONFIG");
    /// # Ok(()) });
    /// ```
    pub fn code_name(&self) -> &str {
        &self.0.name
    }

    /// The message for people.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.create("ubuntu:24.04").cpu(3).await.unwrap_err();
    /// assert!(error.message().contains("resources.cpu"));
    /// # Ok(()) });
    /// ```
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The HTTP status; `None` without a response.
    ///
    /// ```
    /// # sandboxd::testing::run(async |_| {
    /// let nobody = sandboxd_client::Client::builder().url("http://127.0.0.1:9").key("any").build()?;
    /// let error = nobody.health().await.unwrap_err();
    /// assert_eq!((error.code(), error.status()), (sandboxd_client::Code::NetworkError, None));
    /// # Ok(()) });
    /// ```
    pub fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// Further data for programs, such as `sandboxId`; often empty. Errors of connections have a `reason` if their cause is known, such
    /// as `certificate` or `refused`.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.create("ubuntu:24.04").cpu(3).await.unwrap_err();
    /// assert_eq!(error.details()["field"], "resources.cpu");
    /// # Ok(()) });
    /// ```
    pub fn details(&self) -> &Map<String, Value> {
        &self.0.details
    }

    /// The request id, as it appears in the log of the service.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.get("sb_00000000").await.unwrap_err();
    /// assert!(error.request_id().is_some_and(|id| id.starts_with("req_")));
    /// # Ok(()) });
    /// ```
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// Whether the same call may succeed later.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.get("sb_00000000").await.unwrap_err();
    /// assert!(!error.retryable());
    /// # Ok(()) });
    /// ```
    pub fn retryable(&self) -> bool {
        match self.0.code {
            Code::RateLimited | Code::NetworkError => true,
            Code::Configuration | Code::InvalidArgument | Code::LocalFile | Code::DiskFull => false,
            _ => self.0.status.is_some_and(|status| status >= 500),
        }
    }

    /// The delay that the service requests before the next attempt.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.create("busy").without_waiting().await.unwrap_err();
    /// assert!(error.retry_after().is_some());
    /// # Ok(()) });
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// The number of retries before this failure.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.get("sb_00000000").await.unwrap_err();
    /// assert_eq!(error.repeats(), 0);
    /// # Ok(()) });
    /// ```
    pub fn repeats(&self) -> u32 {
        self.0.repeats
    }

    /// How long the call [waited for limits](crate::ClientBuilder::limit_wait) before this failure.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let error = client.get("sb_00000000").await.unwrap_err();
    /// assert!(error.waited().is_zero());
    /// # Ok(()) });
    /// ```
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// Whether the call certainly had no effect: the service was not reached, or refused the call because of a limit. Then it may be sent
    /// again, whatever it does.
    ///
    /// ```
    /// # sandboxd::testing::run(async |_| {
    /// let nobody = sandboxd_client::Client::builder().url("http://127.0.0.1:9").key("any").build()?;
    /// assert!(nobody.health().await.unwrap_err().had_no_effect());
    /// # Ok(()) });
    /// ```
    pub fn had_no_effect(&self) -> bool {
        self.0.is_unstarted
    }

    fn detail(&self, name: &str) -> Option<&str> {
        self.0.details.get(name).and_then(Value::as_str)
    }

    /// Why the sandbox was terminated, if the error says that it was.
    pub(crate) fn terminated(&self) -> Option<&str> {
        let ended = self.0.code == Code::SandboxNotFound && self.detail("state") == Some("terminated");
        if ended { self.detail("reason") } else { None }
    }
}

/// Includes the request id, which the operator can look up in the log.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.0.message, self.0.name)?;
        if let Some(id) = &self.0.request_id {
            write!(f, ", request {id}")?;
        }
        f.write_str(")")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source: &(dyn std::error::Error + 'static) = self.0.source.as_deref()?;
        Some(source)
    }
}

/// The text of an error, and of those of its sources that it does not contain.
pub(crate) fn with_sources(error: &(dyn std::error::Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(behind) = cause {
        let why = behind.to_string();
        if !message.contains(&why) {
            message.push_str(": ");
            message.push_str(&why);
        }
        cause = behind.source();
    }
    without_link(&message).to_owned()
}

/// A message without the link at its end that some libraries add, to their own documentation: it is for programmers.
pub(crate) fn without_link(message: &str) -> &str {
    message.split_once(": https://docs.rs/").map_or(message, |(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn answer(status: u16, body: &str) -> Error {
        Error::of_answer(status, body.as_bytes(), Some("req_h".into()), None)
    }

    #[test]
    fn every_code_of_the_service_has_a_variant_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for code in api::ErrorCode::ALL {
            let body = serde_json::json!({
                "error": { "code": code, "message": "why", "details": {}, "requestId": "req_1" }
            })
            .to_string();
            let error = answer(code.status(), &body);
            assert_eq!((error.code(), error.code_name()), (Code::from(*code), code.as_str()));
            assert_eq!((error.status(), error.request_id()), (Some(code.status()), Some("req_1")));
            // A full disk does not empty itself, and a quota is freed only by the account.
            let for_good = [api::ErrorCode::DiskFull, api::ErrorCode::QuotaExceeded].contains(code);
            let again = matches!(code.status(), 429 | 500..) && !for_good;
            assert_eq!(error.retryable(), again, "{code}");
            assert!(error.code() != Code::Unknown && seen.insert(error.code()), "{code}");
        }
    }

    #[derive(Deserialize)]
    struct Case {
        status: u16,
        body: String,
        headers: std::collections::HashMap<String, String>,
        expected: Expected,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    struct Expected {
        code: String,
        code_name: String,
        message: String,
        status: u16,
        details: Map<String, Value>,
        retryable: bool,
        request_id: Option<String>,
        retry_after_ms: Option<u64>,
    }

    #[test]
    fn error_responses_are_parsed() {
        for case in cases::of::<Case>(include_str!("../../../sdk/cases/error.json")) {
            let id = case.headers.get("x-request-id").cloned();
            let wait = case.headers.get("retry-after").and_then(|value| value.parse().ok());
            let error =
                Error::of_answer(case.status, case.body.as_bytes(), id, wait.map(Duration::from_secs));
            let is_unknown = error.code() == Code::Unknown;
            let parsed = Expected {
                code: if is_unknown { "UNKNOWN" } else { error.code_name() }.to_owned(),
                code_name: error.code_name().to_owned(),
                message: error.message().to_owned(),
                status: error.status().unwrap(),
                details: error.details().clone(),
                retryable: error.retryable(),
                request_id: error.request_id().map(str::to_owned),
                retry_after_ms: error.retry_after().map(|wait| wait.as_millis() as u64),
            };
            assert_eq!(parsed, case.expected);
        }
    }

    #[test]
    fn unknown_error_bodies_are_preserved() {
        let error = answer(418, r#"{"error":{"code":"TEAPOT","message":"short","details":{"a":1}}}"#);
        assert_eq!((error.code(), error.code_name(), error.status()), (Code::Unknown, "TEAPOT", Some(418)));
        assert_eq!((error.details()["a"].as_u64(), error.request_id()), (Some(1), Some("req_h")));
        assert_eq!(error.to_string(), "short (TEAPOT, request req_h)");
        let error = answer(502, "<html>Bad Gateway");
        assert_eq!((error.code(), error.retryable()), (Code::Unknown, true));
        assert_eq!(
            error.to_string(),
            "status 502 without an error body of the service (UNKNOWN, request req_h)"
        );
    }

    #[test]
    fn an_event_of_a_stream_is_an_error_too() {
        let error =
            Error::of_event(r#"{"code":"EXECUTION_ERROR","message":"m","details":{},"requestId":"r"}"#);
        let error = error.unwrap();
        assert_eq!((error.code(), error.status()), (Code::ExecutionError, Some(502)));
        assert!(Error::of_event("gone").is_none());
    }

    #[test]
    fn a_cause_is_in_the_message_once_and_is_the_source() {
        let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let error = Error::local(std::path::Path::new("/x"), denied);
        let source = std::error::Error::source(&error).unwrap();
        assert!(source.is::<std::io::Error>());
        assert_eq!(error.message(), format!("/x: {source}"));
        let outer = Error::network("lost").caused_by(error.clone());
        assert_eq!(outer.message(), format!("lost: {error}"));
        assert!(std::error::Error::source(&Error::network("lost")).is_none());
    }

    #[test]
    fn only_terminated_sandboxes_are_reported_as_terminated() {
        let body = r#"{"error":{"code":"SANDBOX_NOT_FOUND","message":"m","details":{"state":"terminated","reason":"timeout"},"requestId":"r"}}"#;
        assert_eq!(answer(404, body).terminated(), Some("timeout"));
        assert_eq!(answer(404, &body.replace("terminated", "x")).terminated(), None);
        assert_eq!(answer(409, &body.replace("SANDBOX_NOT_FOUND", "INVALID_STATE")).terminated(), None);
    }
}
