//! A small HTTP client. It reuses connections, does not retry, and checks the form of all responses, so that every test also
//! tests headers and error bodies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::IgnorePoison;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio_rustls::TlsConnector;

use super::sender::Sender;
use super::{Events, HttpResponse, Service, tls};

/// Longer than any request of the service may take.
const TIMEOUT: Duration = Duration::from_secs(150);

/// The protocol over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// A client with one API key. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    protocol: Protocol,
    authorization: Option<String>,
    idle: Arc<Mutex<Vec<Sender>>>,
}

/// A request builder.
#[must_use]
pub struct Call<'a> {
    client: &'a Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Service {
    pub fn client(&self, key: &str) -> Result<Client> {
        Ok(Client { authorization: Some(format!("Bearer {key}")), ..self.anonymous()? })
    }

    /// A client without a key.
    pub fn anonymous(&self) -> Result<Client> {
        let tls = self.connector(&["http/1.1"])?;
        let (address, protocol) = (self.address, Protocol::Http1);
        Ok(Client { address, tls, protocol, authorization: None, idle: Arc::default() })
    }

    /// The same key over HTTP/2.
    pub fn over_http2(&self, client: &Client) -> Result<Client> {
        let (tls, protocol) = (self.connector(&["h2"])?, Protocol::Http2);
        Ok(Client { tls, protocol, idle: Arc::default(), ..client.clone() })
    }
}

impl Client {
    /// Sets the whole value of the header `Authorization`.
    #[must_use]
    pub fn with_authorization(&self, authorization: &str) -> Self {
        Self { authorization: Some(authorization.to_owned()), ..self.clone() }
    }

    pub fn authorization(&self) -> &str {
        self.authorization.as_deref().unwrap_or_default()
    }

    /// The key; empty without one.
    pub fn key(&self) -> &str {
        self.authorization().strip_prefix("Bearer ").unwrap_or_default()
    }

    pub fn call(&self, method: Method, path: &str) -> Call<'_> {
        Call { client: self, method, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub async fn get(&self, path: &str) -> Result<HttpResponse> {
        self.call(Method::GET, path).send().await
    }

    pub async fn delete(&self, path: &str) -> Result<HttpResponse> {
        self.call(Method::DELETE, path).send().await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<HttpResponse> {
        self.call(Method::POST, path).json(body).send().await
    }

    /// A POST without a body.
    pub async fn post_empty(&self, path: &str) -> Result<HttpResponse> {
        self.call(Method::POST, path).send().await
    }

    /// A clone that does not share its connections.
    #[must_use]
    pub fn with_own_connections(&self) -> Self {
        Self { idle: Arc::default(), ..self.clone() }
    }

    fn idle(&self) -> Option<Sender> {
        self.idle.lock().ignore_poison().pop()
    }

    async fn connect(&self) -> Result<Sender> {
        let stream = TokioIo::new(tls::connect(&self.tls, self.address, "localhost").await?);
        // The tasks end when the sender is dropped or the server closes the connection; the next request then opens another.
        Ok(match self.protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Sender::One(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
                tokio::spawn(connection);
                Sender::Two(sender)
            }
        })
    }

    async fn sender(&self) -> Result<Sender> {
        while let Some(mut sender) = self.idle() {
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        self.connect().await
    }
}

impl Call<'_> {
    /// Appends a header; a name may occur several times.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        // An invalid value is omitted; tests of invalid headers use a raw connection.
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(HeaderName::from_static(name), value);
        }
        self
    }

    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string().into_bytes())
    }

    pub fn body(mut self, content_type: &str, body: Vec<u8>) -> Self {
        self.body = body.into();
        self.header("content-type", content_type)
    }

    /// Sends the request and checks the form of the complete response.
    pub async fn send(self) -> Result<HttpResponse> {
        let request = format!("{} {}", self.method, self.path);
        let answer = match tokio::time::timeout(TIMEOUT, self.exchange()).await {
            Ok(answer) => answer.with_context(|| request.clone())?,
            Err(_) => bail!("{request} was not answered in time"),
        };
        answer.check().with_context(|| request)?;
        Ok(answer)
    }

    async fn exchange(self) -> Result<HttpResponse> {
        let client = self.client;
        let start = Instant::now();
        let (sender, response) = self.begin().await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        client.idle.lock().ignore_poison().push(sender);
        Ok(HttpResponse { status: head.status.as_u16(), headers: head.headers, body, took: start.elapsed() })
    }

    /// Sends the request; the response must be a stream of events.
    pub async fn stream(self) -> Result<Events> {
        let request = format!("{} {}", self.method, self.path);
        let call = self.header("accept", "text/event-stream");
        let begun = tokio::time::timeout(TIMEOUT, call.begin()).await;
        let (sender, response) = begun.with_context(|| format!("{request} was not answered in time"))??;
        let (head, body) = response.into_parts();
        if head.status != 200 {
            let body = body.collect().await?.to_bytes();
            bail!("{request} was answered with {}: {}", head.status, String::from_utf8_lossy(&body));
        }
        Events::new(sender, head.headers, body)
    }

    async fn begin(self) -> Result<(Sender, Response<Incoming>)> {
        let mut sender = self.client.sender().await?;
        let mut request = Request::new(Full::from(self.body));
        *request.method_mut() = self.method;
        // HTTP/2 takes the host from the request target. HTTP/1.1 sends it as a header, and only the path as target.
        let own_host = self.headers.contains_key("host");
        *request.headers_mut() = self.headers;
        match self.client.protocol {
            Protocol::Http1 => {
                *request.uri_mut() = self.path.parse()?;
                if !own_host {
                    request.headers_mut().insert("host", "localhost".parse()?);
                }
            }
            Protocol::Http2 => *request.uri_mut() = format!("https://localhost{}", self.path).parse()?,
        }
        if let Some(authorization) = &self.client.authorization
            && !request.headers().contains_key("authorization")
        {
            request.headers_mut().insert("authorization", authorization.parse()?);
        }
        let response = sender.send(request).await?;
        Ok((sender, response))
    }
}
