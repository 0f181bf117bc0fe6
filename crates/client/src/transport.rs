//! One call over HTTP: sent, answered, and sent again where that is safe. Every module that speaks to the service makes a
//! [`Call`] and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::RngExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::{Connector, Place};
use crate::payload::{Meter, Outgoing, Payload};
use crate::retry::{Fault, Policy, Safety, may_repeat, wait};
use crate::{Code, Error, Result};

/// Shorter than the service keeps a connection on which nothing comes.
const KEEP_IDLE: Duration = Duration::from_secs(60);
/// Both streams of a command at 16 MiB, each byte written as an escape, and room to spare.
const LONGEST_ANSWER: usize = 256 << 20;
const JSON: &str = "application/json";
const AGENT: &str = concat!("sandboxd-client/", env!("CARGO_PKG_VERSION"));

/// What all calls of a client share. Clones share the connections.
#[derive(Clone)]
pub struct Transport {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    connector: Connector,
    pool: Pool<Connector, Outgoing>,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    policy: Policy,
}

/// One request, as often as it is sent.
#[derive(Clone)]
pub struct Call {
    method: Method,
    /// With its query.
    path: String,
    payload: Payload,
    /// Of the payload.
    kind: &'static str,
    accept: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    safety: Safety,
    /// Where it is not the client's.
    timeout: Option<Duration>,
    /// Not sent again where there is no room.
    is_impatient: bool,
}

impl Call {
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
            is_impatient: false,
        }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Safety::Repeatable)
    }

    pub fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body);
        self.payload = Payload::Whole(body.map_err(|error| Error::configuration(error.to_string()))?.into());
        Ok(self)
    }

    /// Content that is no JSON. One that is streamed is under no timeout but that of its next piece.
    pub fn payload(mut self, payload: Payload, kind: &'static str) -> Self {
        (self.payload, self.kind) = (payload, kind);
        self
    }

    /// Goes on behind an event.
    pub fn after(self, id: &str) -> Result<Self> {
        self.header("last-event-id", id)
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| Error::configuration(format!("{value:?} cannot be the header {name}")))?;
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

    /// The caller himself waits where there is no room.
    pub fn impatient(mut self, is_impatient: bool) -> Self {
        self.is_impatient = is_impatient;
        self
    }
}

/// How a try failed, for the rules, and for the caller.
struct Failure {
    fault: Fault,
    error: Error,
}

impl Transport {
    pub fn new(
        place: Place,
        connector: Connector,
        authorization: Option<HeaderValue>,
        timeout: Duration,
        policy: Policy,
    ) -> Self {
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .build(connector.clone());
        Self { shared: Arc::new(Shared { place, connector, pool, authorization, timeout, policy }) }
    }

    /// The same without a connection in common, for another runtime.
    pub fn apart(&self) -> Self {
        let s = &*self.shared;
        Self::new(s.place.clone(), s.connector.clone(), s.authorization.clone(), s.timeout, s.policy)
    }

    pub fn connector(&self) -> &Connector {
        &self.shared.connector
    }

    /// What every request has beside what it asks for.
    pub fn own_headers(&self, headers: &mut HeaderMap) {
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(authorization) = &self.shared.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
    }

    pub fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    pub fn place(&self) -> &Place {
        &self.shared.place
    }

    /// The whole answer, read as JSON.
    pub async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let (head, body) = self
            .repeated(&call, async |response: Response<Incoming>| {
                let (head, body) = response.into_parts();
                Ok((head, whole(body).await?))
            })
            .await?;
        serde_json::from_slice(&body).map_err(|error| {
            let id = request_id(&head.headers);
            Error::unknown(head.status.as_u16(), format!("the answer is not understood: {error}"), id)
        })
    }

    /// An answer whose body is read as it comes, under no timeout of ours.
    pub async fn stream(&self, call: Call) -> Result<Response<Incoming>> {
        self.repeated(&call, async |response| Ok(response)).await
    }

    /// Sends until it is answered well, or may not be sent again.
    async fn repeated<T>(
        &self,
        call: &Call,
        read: impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> Result<T> {
        let mut repeats = 0;
        loop {
            let failure = match self.within(call, &read).await {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            let is_for_the_caller = call.is_impatient && failure.error.code() == Code::ResourceExhausted;
            let again =
                may_repeat(call.safety, failure.fault) && call.payload.is_left() && !is_for_the_caller;
            let pause = again.then(|| {
                wait(self.shared.policy, repeats + 1, failure.error.retry_after(), rand::rng().random())
            });
            let Some(pause) = pause.flatten() else { return Err(failure.error.after(repeats)) };
            tokio::time::sleep(pause).await;
            repeats += 1;
        }
    }

    /// One try within its time. While a streamed body goes on, the time begins anew with each piece, and does not run while the
    /// next piece is not there.
    async fn within<T>(
        &self,
        call: &Call,
        read: &impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Failure> {
        let limit = call.timeout.unwrap_or(self.shared.timeout);
        let meter = Arc::new(Meter::default());
        let mut trying = std::pin::pin!(self.once(call, &meter, read));
        loop {
            let before = meter.pieces();
            if let Ok(tried) = tokio::time::timeout(limit, &mut trying).await {
                return tried;
            }
            if !call.payload.is_streamed() || (meter.pieces() == before && !meter.is_starved()) {
                let error = Error::network(format!("no answer within {} ms", limit.as_millis()));
                return Err(Failure { fault: Fault::Lost, error });
            }
        }
    }

    async fn once<T>(
        &self,
        call: &Call,
        meter: &Arc<Meter>,
        read: &impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Failure> {
        let unsent = |error| Failure { fault: Fault::NotSent, error };
        let request = self.request(call, meter).map_err(unsent)?;
        let response = self.shared.pool.request(request).await.map_err(|error| {
            if let Some(message) = meter.fault() {
                return Failure { fault: Fault::NoContent, error: Error::local_content(message) };
            }
            let fault = if error.is_connect() { Fault::NotSent } else { Fault::Lost };
            Failure { fault, error: Error::network(self.told(&error)) }
        })?;
        if response.status().is_success() {
            return read(response).await.map_err(|error| Failure { fault: Fault::Lost, error });
        }
        let (head, body) = response.into_parts();
        let body = whole(body).await.map_err(|error| Failure { fault: Fault::Lost, error })?;
        let status = head.status.as_u16();
        let wait = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let id = request_id(&head.headers);
        let error = Error::of_answer(status, &body, id, wait.map(Duration::from_secs));
        Err(Failure { fault: Fault::Answered { status, code: error.code() }, error })
    }

    fn request(&self, call: &Call, meter: &Arc<Meter>) -> Result<Request<Outgoing>> {
        let url = self.shared.place.url(&call.path);
        let url: Uri = url.parse().map_err(|_| Error::configuration(format!("{url:?} is no URL")))?;
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

    /// What a person can act on: the innermost reason, and where it happened.
    fn told(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let mut innermost = error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let url = self.shared.place.url("");
        let hint = match innermost.downcast_ref::<rustls::Error>() {
            Some(rustls::Error::InvalidCertificate(_)) => {
                "; its certificate is not one that this client trusts: name the service's certificate or pin it"
            }
            _ => "",
        };
        format!("no answer from {url}: {innermost}{hint}")
    }
}

pub async fn whole(body: Incoming) -> std::result::Result<Bytes, Error> {
    let body = Limited::new(body, LONGEST_ANSWER).collect().await;
    Ok(body.map_err(|error| Error::network(format!("the answer broke off: {error}")))?.to_bytes())
}

pub fn request_id(headers: &HeaderMap) -> Option<String> {
    Some(headers.get("x-request-id")?.to_str().ok()?.to_owned())
}

/// A value within a query, percent-encoded.
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
    #[test]
    fn queries_are_encoded() {
        assert_eq!(super::encoded("ubuntu:24.04 ü&=%"), "ubuntu%3A24.04%20%C3%BC%26%3D%25");
    }
}
