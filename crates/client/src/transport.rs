//! One call over HTTP: sent, answered, and sent again where that is safe. Every module that speaks to the service makes a
//! [`Call`] and nothing else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, Uri};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rand::RngExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::{Connector, Place};
use crate::retry::{Fault, Policy, Safety, may_repeat, wait};
use crate::{Error, Result};

/// Shorter than the service keeps a connection on which nothing comes.
const KEEP_IDLE: Duration = Duration::from_secs(60);
/// Both streams of a command at 16 MiB, each byte written as an escape, and room to spare.
const LONGEST_ANSWER: usize = 256 << 20;
const AGENT: &str = concat!("sandboxd-client/", env!("CARGO_PKG_VERSION"));

/// What all calls of a client share. Clones share the connections.
#[derive(Clone)]
pub struct Transport {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    connector: Connector,
    pool: Pool<Connector, Full<Bytes>>,
    authorization: Option<HeaderValue>,
    timeout: Duration,
    policy: Policy,
}

/// One request, as often as it is sent.
#[derive(Debug, Clone)]
pub struct Call {
    method: Method,
    /// With its query.
    path: String,
    body: Option<Bytes>,
    accept: &'static str,
    key: Option<HeaderValue>,
    last_event: Option<HeaderValue>,
    kind: &'static str,
    safety: Safety,
    /// Where it is not the client's.
    timeout: Option<Duration>,
}

impl Call {
    pub fn new(method: Method, path: impl Into<String>, safety: Safety) -> Self {
        let (path, accept) = (path.into(), "application/json");
        let kind = "application/json";
        Self { method, path, body: None, accept, key: None, last_event: None, kind, safety, timeout: None }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, Safety::Repeatable)
    }

    pub fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let body = serde_json::to_vec(body);
        self.body = Some(body.map_err(|error| Error::configuration(error.to_string()))?.into());
        Ok(self)
    }

    /// A body that is not JSON.
    pub fn bytes(mut self, body: Bytes) -> Self {
        (self.body, self.kind) = (Some(body), "application/octet-stream");
        self
    }

    /// Goes on behind an event.
    pub fn after(mut self, id: &str) -> Result<Self> {
        let value = HeaderValue::from_str(id);
        self.last_event = Some(value.map_err(|_| Error::configuration(format!("{id:?} is no place")))?);
        Ok(self)
    }

    pub fn key(mut self, key: &str) -> Result<Self> {
        let value = HeaderValue::from_str(key).map_err(|_| {
            Error::configuration("an Idempotency-Key is 1 to 255 visible ASCII characters".to_owned())
        })?;
        self.key = Some(value);
        Ok(self)
    }

    pub fn accept(mut self, accept: &'static str) -> Self {
        self.accept = accept;
        self
    }

    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
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
            let within = call.timeout.unwrap_or(self.shared.timeout);
            let tried = tokio::time::timeout(within, self.once(call, &read)).await;
            let failure = match tried {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    let error = Error::network(format!("no answer within {} ms", within.as_millis()));
                    Failure { fault: Fault::Lost, error }
                }
            };
            let pause = may_repeat(call.safety, failure.fault).then(|| {
                wait(self.shared.policy, repeats + 1, failure.error.retry_after(), rand::rng().random())
            });
            let Some(pause) = pause.flatten() else { return Err(failure.error.after(repeats)) };
            tokio::time::sleep(pause).await;
            repeats += 1;
        }
    }

    async fn once<T>(
        &self,
        call: &Call,
        read: &impl AsyncFn(Response<Incoming>) -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Failure> {
        let unsent = |error| Failure { fault: Fault::NotSent, error };
        let request = self.request(call).map_err(unsent)?;
        let response = self.shared.pool.request(request).await.map_err(|error| {
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

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>> {
        let url = self.shared.place.url(&call.path);
        let url: Uri = url.parse().map_err(|_| Error::configuration(format!("{url:?} is no URL")))?;
        let mut request = Request::new(Full::from(call.body.clone().unwrap_or_default()));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        headers.insert(header::ACCEPT, HeaderValue::from_static(call.accept));
        self.own_headers(headers);
        if call.body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(call.kind));
        }
        if let Some(id) = &call.last_event {
            headers.insert("last-event-id", id.clone());
        }
        if let Some(key) = &call.key {
            headers.insert("idempotency-key", key.clone());
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
pub fn encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
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
mod tests;
