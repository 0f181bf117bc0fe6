//! A minimal client: one persistent TLS connection, HTTP/1.1, no pool and no retries, so that the server dominates the measurement.
//! Used by the benches over HTTP, for the daemon and for its peers.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The address and key of requests.
#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    tls: TlsConnector,
    key: String,
}

/// A persistent connection.
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authorization: String,
}

impl Target {
    /// A server with one of these certificates.
    pub fn new(
        address: SocketAddr,
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
        key: &str,
    ) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, tls: TlsConnector::from(Arc::new(config)), key: key.to_owned() })
    }

    pub async fn connect(&self) -> Result<Connection> {
        let (sender, connection) = handshake(TokioIo::new(self.stream().await?)).await?;
        // Ends when the sender is dropped or the server closes the connection; the next request then fails.
        tokio::spawn(connection);
        Ok(Connection { sender, authorization: format!("Bearer {}", self.key) })
    }

    /// Uploads a piece repeatedly over a new connection; returns the response.
    pub async fn put(&self, path: &str, piece: Bytes, times: u64) -> Result<Value> {
        let (mut sender, connection) = handshake(TokioIo::new(self.stream().await?)).await?;
        tokio::spawn(connection);
        let bytes = piece.len() as u64 * times;
        let frames = (0..times).map(move |_| Ok::<_, std::convert::Infallible>(Frame::data(piece.clone())));
        let request = Request::builder()
            .method(Method::PUT)
            .uri(path)
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", self.key))
            .header("content-length", bytes)
            .body(StreamBody::new(futures_util::stream::iter(frames)))?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path} answered {status}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).context("the response is not JSON")
    }

    async fn stream(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address)
            .await
            .with_context(|| format!("connecting to {}", self.address))?;
        stream.set_nodelay(true)?;
        Ok(self.tls.connect(ServerName::try_from("localhost")?, stream).await?)
    }
}

impl Connection {
    /// Sends a request; returns the response before its body.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        body: Option<&Value>,
    ) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("accept", accept)
            .header("authorization", &self.authorization)
            .header("content-type", "application/json")
            .body(Full::from(body.map_or_else(Bytes::new, |body| body.to_string().into())))?;
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// The body of a response that must be a success.
    pub async fn bytes(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes> {
        let answer = self.send(method, path, "application/json", body).await?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{path} answered {status}: {}", String::from_utf8_lossy(&bytes));
        Ok(bytes)
    }

    pub async fn json(&mut self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        serde_json::from_slice(&self.bytes(method, path, body).await?).context("the response is not JSON")
    }
}
