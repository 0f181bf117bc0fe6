//! Sends calls over HTTP, with retries where they are safe. Modules describe a request as an [`ApiCall`].

pub mod connect;
pub mod connection_error;
pub mod fingerprint;
pub mod limit_waits;
pub mod payload;
pub mod retry;
pub mod trust;
pub mod websocket;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::response;
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::RngExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::transport::connect::{Connector, ServiceUrl};
use crate::transport::connection_error::{no_response, redirected};
use crate::transport::limit_waits::LimitWaits;
use crate::transport::payload::{Meter, Outgoing, Payload};
use crate::transport::retry::{AttemptFault, Policy, Safety, may_repeat, wait};
use crate::{Code, Error, Result};

/// Shorter than the idle timeout of the service.
const KEEP_IDLE: Duration = Duration::from_secs(60);
/// Two output streams of 16 MiB with every byte escaped, plus a margin.
const LONGEST_ANSWER: usize = 256 << 20;
/// The limit of a host whose disk is almost full.
const FULL_DISK: &str = "capacity.reserve_disk_mb";
const JSON: &str = "application/json";
const AGENT: &str = concat!("sandboxd-client/", env!("CARGO_PKG_VERSION"));

/// What all calls of a client share. Clones share connections.
#[derive(Clone)]
pub struct Transport {
    shared: Arc<TransportShared>,
}

#[derive(Clone)]
struct TransportShared {
    service_url: ServiceUrl,
    connector: Connector,
    pool: Pool<Connector, Outgoing>,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    policy: Policy,
    limit_waits: LimitWaits,
}

/// A request, for all attempts.
#[derive(Clone)]
pub struct ApiCall {
    method: Method,
    /// Path and query.
    path: String,
    payload: Payload,
    /// Content type of the payload.
    kind: &'static str,
    accept: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    safety: Safety,
    /// Overrides the timeout of the client.
    timeout: Option<Duration>,
    exhaustion: OnExhaustion,
}

/// What a call does when the service lacks a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnExhaustion {
    /// It waits and is repeated, as after other refusals.
    Repeat,
    /// It fails if the disk of the host is almost full, which lasts until somebody frees space.
    FailOnFullDisk,
    /// It fails: its caller handles `RESOURCE_EXHAUSTED`.
    Fail,
}

impl OnExhaustion {
    fn fails(self, error: &Error) -> bool {
        let is_full_disk = || error.details().get("key").is_some_and(|key| key == FULL_DISK);
        error.code() == Code::ResourceExhausted
            && match self {
                Self::Repeat => false,
                Self::FailOnFullDisk => is_full_disk(),
                Self::Fail => true,
            }
    }
}

impl ApiCall {
    pub fn new(method: Method, path: impl Into<String>, safety: Safety) -> Self {
        Self {
            method,
            path: path.into(),
            payload: Payload::None,
            kind: JSON,
            accept: JSON,
            headers: Vec::new(),
            safety,
            timeout: None,
            exhaustion: OnExhaustion::Repeat,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Safety::Repeatable)
    }

    pub fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body);
        let body = body.map_err(|error| Error::configuration(error.to_string()).with_source(error))?;
        self.payload = Payload::Whole(body.into());
        Ok(self)
    }

    /// Sets content other than JSON. For streamed content the timeout applies to each chunk.
    pub fn payload(mut self, payload: Payload, kind: &'static str) -> Self {
        (self.payload, self.kind) = (payload, kind);
        self
    }

    /// Continues a stream after an event.
    pub fn after(self, id: &str) -> Result<Self> {
        self.header("last-event-id", id)
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value).map_err(|_| {
            Error::configuration(format!("'{}' cannot be the header {name}", value.escape_debug()))
        })?;
        self.headers.push((HeaderName::from_static(name), value));
        Ok(self)
    }

    pub fn key(self, key: &str) -> Result<Self> {
        self.header("idempotency-key", key).map_err(|_| {
            Error::configuration("an Idempotency-Key is 1 to 255 visible ASCII characters".to_owned())
        })
    }

    pub fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The caller handles `RESOURCE_EXHAUSTED`.
    pub fn impatient(mut self) -> Self {
        self.exhaustion = OnExhaustion::Fail;
        self
    }

    /// The call fails at once while the disk of the host is almost full.
    pub fn unless_disk_is_full(mut self) -> Self {
        self.exhaustion = OnExhaustion::FailOnFullDisk;
        self
    }
}

/// A failed attempt: the fault for the retry rules, and the error for the caller.
struct AttemptFailure {
    fault: AttemptFault,
    error: Error,
}

impl Transport {
    pub fn new(
        service_url: ServiceUrl,
        connector: Connector,
        authorization: Option<HeaderValue>,
        timeout: Duration,
        policy: Policy,
        limit_waits: LimitWaits,
    ) -> Self {
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .build(connector.clone());
        let shared =
            TransportShared { service_url, connector, pool, authorization, timeout, policy, limit_waits };
        Self { shared: Arc::new(shared) }
    }

    /// The same with connections of its own, for another Tokio runtime.
    pub fn reconnected(&self) -> Self {
        let TransportShared { service_url, connector, authorization, timeout, policy, limit_waits, .. } =
            (*self.shared).clone();
        Self::new(service_url, connector, authorization, timeout, policy, limit_waits)
    }

    /// The same, also its connections, without waits for limits.
    pub fn without_limit_waits(&self) -> Self {
        let shared = TransportShared { limit_waits: LimitWaits::default(), ..(*self.shared).clone() };
        Self { shared: Arc::new(shared) }
    }

    pub fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// Adds the headers of every request.
    pub fn own_headers(&self, headers: &mut HeaderMap) {
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(authorization) = &self.shared.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
    }

    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    #[cfg(test)]
    pub fn authorization(&self) -> Option<&HeaderValue> {
        self.shared.authorization.as_ref()
    }

    pub fn service_url(&self) -> &ServiceUrl {
        &self.shared.service_url
    }

    /// Sends a call and parses the response as JSON.
    pub async fn json<T: DeserializeOwned>(&self, call: ApiCall) -> Result<T> {
        let (head, body) = self
            .repeated(&call, async |response: Response<Incoming>| {
                let (head, body) = response.into_parts();
                Ok((head, collect_body(body).await?))
            })
            .await?;
        serde_json::from_slice(&body).map_err(|error| {
            let id = request_id(&head.headers);
            Error::unknown(head.status.as_u16(), "the response cannot be parsed", id).caused_by(error)
        })
    }

    /// Sends a call and returns the response with a streamed body, which has no timeout here.
    pub async fn stream(&self, call: ApiCall) -> Result<Response<Incoming>> {
        self.repeated(&call, async |response| Ok(response)).await
    }

    /// Sends a call with retries.
    async fn repeated<T>(
        &self,
        call: &ApiCall,
        read: impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> Result<T> {
        let (mut repeats, mut waited) = (0, Duration::ZERO);
        loop {
            let failure = match self.within(call, &read).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let again = may_repeat(call.safety, failure.fault)
                && call.payload.can_be_sent()
                && !call.exhaustion.fails(&failure.error);
            let random = rand::rng().random();
            let limit_wait = self.shared.limit_waits.next(&failure.error, waited, random);
            if let Some(pause) = limit_wait.filter(|_| again) {
                self.shared.limit_waits.report(&failure.error, pause);
                tokio::time::sleep(pause).await;
                waited += pause;
                continue;
            }
            let retry_after = failure.error.retry_after();
            let pause = again.then(|| wait(self.shared.policy, repeats + 1, retry_after, random)).flatten();
            let Some(pause) = pause else {
                let error = failure.error.after(repeats, waited);
                let is_unstarted = may_repeat(Safety::OnlyUnstarted, failure.fault);
                return Err(if is_unstarted { error.unstarted() } else { error });
            };
            tokio::time::sleep(pause).await;
            repeats += 1;
        }
    }

    /// One attempt within the timeout. For a streamed body the timeout restarts with each chunk and is suspended while the source has no
    /// data.
    async fn within<T>(
        &self,
        call: &ApiCall,
        read: &impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, AttemptFailure> {
        let limit = call.timeout.unwrap_or(self.shared.timeout);
        let meter = Arc::new(Meter::default());
        let mut trying = std::pin::pin!(self.once(call, &meter, read));
        loop {
            let before = meter.pieces();
            if let Ok(tried) = tokio::time::timeout(limit, &mut trying).await {
                return tried;
            }
            if !call.payload.is_streamed() || (meter.pieces() == before && !meter.is_starved()) {
                let error = Error::network(format!("no response within {} ms", limit.as_millis()));
                return Err(AttemptFailure { fault: AttemptFault::Lost, error });
            }
        }
    }

    async fn once<T>(
        &self,
        call: &ApiCall,
        meter: &Arc<Meter>,
        read: &impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, AttemptFailure> {
        let unsent = |error| AttemptFailure { fault: AttemptFault::NotSent, error };
        let request = self.request(call, meter).map_err(unsent)?;
        let response = self.shared.pool.request(request).await.map_err(|error| {
            if let Some(message) = meter.fault() {
                let error = Error::local_content(message).with_source(error);
                return AttemptFailure { fault: AttemptFault::NoContent, error };
            }
            let fault = if error.is_connect() { AttemptFault::NotSent } else { AttemptFault::Lost };
            AttemptFailure { fault, error: no_response(error, &self.shared.service_url.url("")) }
        })?;
        if response.status().is_success() {
            return read(response).await.map_err(|error| AttemptFailure { fault: AttemptFault::Lost, error });
        }
        let (head, body) = response.into_parts();
        let status = head.status.as_u16();
        if let Some(error) = self.redirect_error(call, &head) {
            return Err(AttemptFailure { fault: fault_of(status, &error), error });
        }
        let body =
            collect_body(body).await.map_err(|error| AttemptFailure { fault: AttemptFault::Lost, error })?;
        let wait = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let id = request_id(&head.headers);
        let error = Error::of_answer(status, &body, id, wait.map(Duration::from_secs));
        Err(AttemptFailure { fault: fault_of(status, &error), error })
    }

    /// The error of a redirect from plain HTTP to HTTPS, which is not followed: the key was sent in the clear.
    fn redirect_error(&self, call: &ApiCall, head: &response::Parts) -> Option<Error> {
        let location = head.headers.get(header::LOCATION).filter(|_| head.status.is_redirection())?;
        redirected(&self.shared.service_url.url(""), &call.path, location.to_str().ok()?)
    }

    fn request(&self, call: &ApiCall, meter: &Arc<Meter>) -> Result<Request<Outgoing>> {
        let url = self.shared.service_url.url(&call.path);
        let url: Uri = url
            .parse()
            .map_err(|_| Error::configuration(format!("'{}' is not a URL", url.escape_debug())))?;
        let mut request = Request::new(call.payload.body(meter));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(call.accept));
        self.own_headers(headers);
        if !call.payload.is_none() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(call.kind));
        }
        for (name, value) in &call.headers {
            headers.insert(name, value.clone());
        }
        Ok(request)
    }
}

/// The fault of an error response.
fn fault_of(status: u16, error: &Error) -> AttemptFault {
    match error.details().get("commandStarted") {
        Some(Value::Bool(true)) => AttemptFault::Killed,
        _ => AttemptFault::Answered { status, code: error.code() },
    }
}

pub async fn collect_body(body: Incoming) -> std::result::Result<Bytes, Error> {
    let body = Limited::new(body, LONGEST_ANSWER).collect().await;
    Ok(body.map_err(|error| Error::network("the response was interrupted").caused_by(error))?.to_bytes())
}

pub fn request_id(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("x-request-id")?.to_str().ok()?.to_owned())
}

/// Percent-encodes a query value.
pub fn encoded(text: impl AsRef<[u8]>) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.as_ref().len());
    for &byte in text.as_ref() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_killed_command_is_not_a_refused_one() {
        let fault = |details| {
            let error = json!({"code": "RESOURCE_EXHAUSTED", "message": "m", "details": details});
            let body = json!({ "error": error }).to_string();
            fault_of(503, &Error::of_answer(503, body.as_bytes(), None, None))
        };
        let refused = AttemptFault::Answered { status: 503, code: Code::ResourceExhausted };
        assert_eq!(fault(json!({"commandStarted": true})), AttemptFault::Killed);
        assert_eq!(fault(json!({"commandStarted": false})), refused);
        assert_eq!(fault(json!({})), refused);
    }

    #[test]
    fn calls_choose_whether_they_wait_for_the_disk() {
        let refused = |key: &str| {
            let error = json!({"code": "RESOURCE_EXHAUSTED", "message": "m", "details": {"key": key}});
            Error::of_answer(503, json!({ "error": error }).to_string().as_bytes(), None, None)
        };
        let (disk, memory) = (refused(FULL_DISK), refused("capacity.reserve_memory_mb"));
        let of = |exhaustion: OnExhaustion| (exhaustion.fails(&disk), exhaustion.fails(&memory));
        assert_eq!(of(OnExhaustion::Repeat), (false, false));
        assert_eq!(of(OnExhaustion::FailOnFullDisk), (true, false));
        assert_eq!(of(OnExhaustion::Fail), (true, true));
    }

    #[test]
    fn queries_are_encoded() {
        assert_eq!(super::encoded("ubuntu:24.04 ü&=%"), "ubuntu%3A24.04%20%C3%BC%26%3D%25");
    }
}
