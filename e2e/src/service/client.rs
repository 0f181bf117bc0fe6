//! A small HTTP client. It reuses connections, does not retry, and checks the form of all responses, so that every test also
//! tests headers and error bodies.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
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
use super::{Answer, Events, Service, tls};

/// Longer than any request of the service may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is spoken over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// One key's view of a service. Clones share their connections.
#[derive(Clone)]
pub struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    protocol: Protocol,
    authorization: Option<String>,
    idle: Arc<Mutex<Vec<Sender>>>,
}

/// A request that is being put together.
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
    /// Whatever stands here goes as the header `Authorization`.
    #[must_use]
    pub fn with_authorization(&self, authorization: &str) -> Self {
        Self { authorization: Some(authorization.to_owned()), ..self.clone() }
    }

    pub fn authorization(&self) -> &str {
        self.authorization.as_deref().unwrap_or_default()
    }

    pub fn call(&self, method: Method, path: &str) -> Call<'_> {
        Call { client: self, method, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.call(Method::GET, path).send().await
    }

    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.call(Method::DELETE, path).send().await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.call(Method::POST, path).json(body).send().await
    }

    /// A POST that has no body.
    pub async fn order(&self, path: &str) -> Result<Answer> {
        self.call(Method::POST, path).send().await
    }

    /// A connection of its own, for requests that are not to share one.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { idle: Arc::default(), ..self.clone() }
    }

    fn idle(&self) -> Option<Sender> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<Sender> {
        let stream = TokioIo::new(tls::connect(&self.tls, self.address, "localhost").await?);
        // The tasks end with the sender, or with the server's end of the connection, which the next request finds.
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
    /// One more header; of the same name there may be several.
    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        // What the client cannot even send shows as a request without the header; tests of those use a raw connection.
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

    /// The whole answer, which has the form that every answer has.
    pub async fn send(self) -> Result<Answer> {
        let what = format!("{} {}", self.method, self.path);
        let answer = match tokio::time::timeout(PATIENCE, self.exchange()).await {
            Ok(answer) => answer.with_context(|| what.clone())?,
            Err(_) => bail!("{what} is not answered"),
        };
        answer.check().with_context(|| what)?;
        Ok(answer)
    }

    async fn exchange(self) -> Result<Answer> {
        let client = self.client;
        let begun = Instant::now();
        let (sender, response) = self.begin().await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        client.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body, took: begun.elapsed() })
    }

    /// An answer that has to be a stream of events.
    pub async fn stream(self) -> Result<Events> {
        let what = format!("{} {}", self.method, self.path);
        let call = self.header("accept", "text/event-stream");
        let begun = tokio::time::timeout(PATIENCE, call.begin()).await;
        let (sender, response) = begun.with_context(|| format!("{what} is not answered"))??;
        let (head, body) = response.into_parts();
        if head.status != 200 {
            let body = body.collect().await?.to_bytes();
            bail!("{what} answered {}: {}", head.status, String::from_utf8_lossy(&body));
        }
        Events::new(sender, head.headers, body)
    }

    async fn begin(self) -> Result<(Sender, Response<Incoming>)> {
        let mut sender = self.client.sender().await?;
        let mut request = Request::new(Full::from(self.body));
        *request.method_mut() = self.method;
        // HTTP/2 takes the host from the target; HTTP/1.1 has it in its header and the path alone in the target.
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
