//! Exposed ports: a program that listens in a sandbox, and clients of its ports.

mod exposure;
mod hostile;
mod traffic;

use std::sync::Arc;

use bytes::Bytes;
use e2e::service::{Client, Service, read_head};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::files::write;
use crate::{action_path, create_sandbox, output, text, wait_until};

const PROGRAM: &str = include_str!("ports/portal.pl");
pub const PORT: u16 = 8080;

/// A client of an exposed port.
#[derive(Clone)]
pub struct PortClient {
    pub service: Arc<Service>,
    pub host: String,
    /// The value of `X-Sandbox-Token`.
    pub token: Option<String>,
}

/// A complete response of the program or of the service.
#[derive(Debug)]
pub struct PortResponse {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl PortResponse {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn code(&self) -> String {
        let body: Value =
            serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("not an error body: {self:?}"));
        assert_eq!(body["error"]["requestId"], self.headers["x-request-id"].to_str().unwrap());
        text(&body["error"]["code"])
    }
}

/// Starts the program in a sandbox and waits until it listens.
pub async fn listen(client: &Client, id: &str, port: u16) {
    write(client, id, "portal.pl", PROGRAM).await;
    output(client, id, &format!("perl portal.pl {port} > portal.log 2>&1 &")).await;
    wait_until("the program listens", async || {
        output(
            client,
            id,
            &format!("curl -s -m 5 http://127.0.0.1:{port}/ || cat portal.log 2> /dev/null || true"),
        )
        .await
            == format!("it is port {port}")
    })
    .await;
}

pub async fn expose(client: &Client, id: &str, body: &Value) -> Value {
    client.post(&action_path(id, "ports"), body).await.unwrap().is(201).unwrap()
}

pub async fn token(client: &Client, id: &str, port: u16) -> String {
    let path = action_path(id, &format!("ports/{port}/token"));
    text(&client.post(&path, &json!({})).await.unwrap().is(201).unwrap()["token"])
}

/// The host in a port's URL, without the port of the service.
pub fn host_of(port: &Value) -> String {
    let url = text(&port["url"]);
    let host = url.strip_prefix("https://").unwrap();
    host.rsplit_once(':').unwrap().0.to_owned()
}

/// Creates a sandbox with the program listening, and a client of its exposed port with a token.
pub async fn open_port(service: &Arc<Service>, client: &Client) -> (String, PortClient) {
    let id = create_sandbox(client).await;
    listen(client, &id, PORT).await;
    let port = expose(client, &id, &json!({ "port": PORT })).await;
    let token = Some(token(client, &id, PORT).await);
    (id, PortClient { service: Arc::clone(service), host: host_of(&port), token })
}

impl PortClient {
    pub fn without_token(&self) -> Self {
        Self { token: None, ..self.clone() }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self.clone() }
    }

    pub fn request(&self, method: &str, path: &str) -> Request<Full<Bytes>> {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.host);
        if let Some(token) = &self.token {
            request = request.header("x-sandbox-token", token);
        }
        request.body(Full::default()).unwrap()
    }

    /// Sends one request on a new connection.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> PortResponse {
        collect(self.begin(request).await).await
    }

    pub async fn begin(&self, request: Request<Full<Bytes>>) -> Response<hyper::body::Incoming> {
        let stream = self.service.tls(&self.host, &["http/1.1"]).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    /// Sends one request over HTTP/2, which has the host in the request target.
    pub async fn send_h2(&self, mut request: Request<Full<Bytes>>) -> PortResponse {
        let stream = self.service.tls(&self.host, &["h2"]).await.unwrap();
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        request.headers_mut().remove("host");
        *request.uri_mut() = format!("https://{}{}", self.host, request.uri()).parse().unwrap();
        collect(sender.send_request(request).await.unwrap()).await
    }

    pub async fn get(&self, path: &str) -> PortResponse {
        self.send(self.request("GET", path)).await
    }

    /// A connection on which these bytes were sent.
    pub async fn raw(&self, bytes: &str) -> TlsStream<TcpStream> {
        let mut stream = self.service.tls(&self.host, &["http/1.1"]).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        stream
    }

    /// The handshake request of a websocket.
    pub fn handshake(&self) -> String {
        let token =
            self.token.as_ref().map(|token| format!("X-Sandbox-Token: {token}\r\n")).unwrap_or_default();
        format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\n{token}Connection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
            self.host
        )
    }

    /// An open websocket, after the program's greeting.
    pub async fn websocket(&self) -> TlsStream<TcpStream> {
        let mut stream = self.raw(&self.handshake()).await;
        let head = read_head(&mut stream).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        expect(&mut stream, b"hello").await;
        stream
    }
}

async fn collect(response: Response<hyper::body::Incoming>) -> PortResponse {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    PortResponse { status: head.status.as_u16(), headers: head.headers, body }
}

pub async fn expect(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    let mut received = vec![0; bytes.len()];
    stream.read_exact(&mut received).await.unwrap();
    assert!(received == bytes, "{}", received.escape_ascii());
}
