//! A running server with a small router, and clients that send given bytes.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::StreamExt;
use listen::{
    Answers, Fault, IsExempt, Limits, Listener, PeerAddr, SelfSigned, Server, Stopped, Tls, TlsConfig,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// Timeout of all waits of the tests.
pub const TIMEOUT: Duration = Duration::from_secs(90);

pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(TIMEOUT, future).await {
        Ok(done) => done,
        Err(_) => panic!("not within {TIMEOUT:?}: {what}"),
    }
}

/// Error bodies with the required fields.
pub struct TestAnswers;

fn error(status: StatusCode, message: &str, request_id: Option<&HeaderValue>) -> Response {
    let id = request_id.and_then(|id| id.to_str().ok()).unwrap_or("made-here").to_owned();
    let body = format!(
        r#"{{"error":{{"code":"INVALID_REQUEST","message":"{message}","details":{{}},"requestId":"{id}"}}}}"#
    );
    let headers = [
        ("content-type", "application/json; charset=utf-8".to_owned()),
        ("x-request-id", id),
        ("x-ratelimit-limit", "300".to_owned()),
        ("x-ratelimit-remaining", "300".to_owned()),
        ("x-ratelimit-reset", "1".to_owned()),
    ];
    (status, headers, body).into_response()
}

impl Answers for TestAnswers {
    fn fault(&self, fault: Fault, request_id: Option<&HeaderValue>) -> Response {
        error(fault.status(), &fault.to_string(), request_id)
    }

    fn moved(&self, _location: &str, request_id: Option<&HeaderValue>) -> Response {
        error(StatusCode::MOVED_PERMANENTLY, "use HTTPS", request_id)
    }
}

/// The router's state, as tests see it.
#[derive(Default)]
pub struct Inside {
    /// Requests to `/hold` that have begun, and those that ended or were dropped.
    pub held: AtomicUsize,
    pub dropped: AtomicUsize,
    pub changed: Notify,
    /// Releases the requests to `/hold`.
    pub release: CancellationToken,
    /// Ends the streams.
    pub streams_end: CancellationToken,
}

impl Inside {
    pub async fn until(&self, what: &str, enough: impl Fn(&Self) -> bool) {
        let wait = async {
            loop {
                let changed = self.changed.notified();
                if enough(self) {
                    return;
                }
                // A bounded wait, so that a lost wake-up does not hang the test.
                let _ = timeout(Duration::from_millis(50), changed).await;
            }
        };
        in_time(what, wait).await;
    }
}

struct Held(Arc<Inside>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

fn hold(inside: &Arc<Inside>) -> Held {
    inside.held.fetch_add(1, Ordering::SeqCst);
    inside.changed.notify_waiters();
    Held(inside.clone())
}

pub fn router(inside: &Arc<Inside>) -> Router {
    let (holding, streaming) = (inside.clone(), inside.clone());
    let (bodies, late_bodies) = (inside.clone(), inside.clone());
    let routes =
        Router::new()
            .route("/hello", get(|| async { "hello" }))
            .route(
                "/peer",
                get(|request: Request| async move {
                    request.extensions().get::<PeerAddr>().unwrap().0.to_string()
                }),
            )
            .route("/echo", post(echo))
            .route("/refuse", post(|| async { StatusCode::PAYLOAD_TOO_LARGE }))
            .route("/refuse-at-length", post(|| async { vec![b'x'; LONG_RESPONSE_BYTES] }))
            .route("/early", post(early))
            .route("/big", get(big))
            .route("/broken", get(broken))
            .route("/held-body", get(move || held_body(bodies.clone())))
            .route("/late-body", get(move || late_body(late_bodies.clone())))
            .route("/hold", get(move || hold_on(holding.clone())))
            .route("/stream", get(move || stream(streaming.clone())));
    routes.layer(axum::middleware::map_response(|mut response: Response| async move {
        response.headers_mut().entry("x-request-id").or_insert(HeaderValue::from_static("router"));
        response
    }))
}

async fn echo(body: Body) -> Response {
    match to_bytes(body, 64 * 1024 * 1024).await {
        Ok(bytes) => format!("{} bytes", bytes.len()).into_response(),
        Err(e) => error(StatusCode::BAD_REQUEST, &e.to_string(), Some(&HeaderValue::from_static("router"))),
    }
}

/// More than the kernel buffers for a client that does not read.
pub const LONG_RESPONSE_BYTES: usize = 16 << 20;

/// Responds before it reads the request's body, of which it reads as many bytes as in the query.
async fn early(request: Request) -> Body {
    let most: usize = request.uri().query().map_or(usize::MAX, |it| it.parse().unwrap());
    let mut body = request.into_body().into_data_stream();
    let first = futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from("begun ")) });
    let rest = futures_util::stream::once(async move {
        let mut count = 0;
        while count < most
            && let Some(piece) = body.next().await
        {
            count += piece.map_err(std::io::Error::other)?.len();
        }
        Ok::<_, std::io::Error>(Bytes::from(format!("{count} bytes read")))
    });
    Body::from_stream(first.chain(rest))
}

/// A body that fails after its first bytes.
async fn broken() -> Body {
    let pieces = [Ok(Bytes::from("begun")), Err(std::io::Error::other("broken off"))];
    Body::from_stream(futures_util::stream::iter(pieces))
}

/// A body of as many MiB as in the query.
async fn big(request: Request) -> Body {
    let count: usize = request.uri().query().unwrap_or("1").parse().unwrap();
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let pieces =
        futures_util::stream::iter((0..count * 16).map(move |_| Ok::<_, std::io::Error>(piece.clone())));
    Body::from_stream(pieces)
}

/// A megabyte in one chunk, counted until its memory is released.
async fn held_body(inside: Arc<Inside>) -> Bytes {
    struct Owner(Vec<u8>, #[expect(dead_code, reason = "dropped with the bytes")] Held);
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    Bytes::from_owner(Owner(vec![b'x'; 1 << 20], hold(&inside)))
}

/// The same, not ready at once.
async fn late_body(inside: Arc<Inside>) -> Body {
    let bytes = held_body(inside).await;
    Body::from_stream(futures_util::stream::once(async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok::<_, std::io::Error>(bytes)
    }))
}

async fn hold_on(inside: Arc<Inside>) -> &'static str {
    let held = hold(&inside);
    inside.release.cancelled().await;
    drop(held);
    "held"
}

/// A stream with one event, which stays open until the test ends it.
async fn stream(inside: Arc<Inside>) -> Response {
    let held = hold(&inside);
    let first = futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from("data: first\n\n")) });
    let last = futures_util::stream::once(async move {
        inside.streams_end.cancelled().await;
        drop(held);
        Ok(Bytes::from("data: last\n\n"))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(first.chain(last))).into_response()
}

/// The kind of listener.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Https,
    Http,
    Redirect { port: u16 },
}

pub struct Running {
    pub address: SocketAddr,
    pub inside: Arc<Inside>,
    pub stop: CancellationToken,
    pub task: JoinHandle<Stopped>,
    pub tls: Option<Tls>,
    _dir: tempfile::TempDir,
}

pub struct Start {
    pub kind: Kind,
    pub limits: Limits,
    pub grace: Duration,
    pub config: Option<TlsConfig>,
    pub is_exempt: IsExempt,
}

impl Start {
    pub fn new(kind: Kind) -> Self {
        let is_exempt: IsExempt = Arc::new(|_| false);
        Self { kind, limits: Limits::default(), grace: TIMEOUT, config: None, is_exempt }
    }

    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Self {
        change(&mut self.limits);
        self
    }

    pub async fn go(self) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let socket = listen::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        let own =
            SelfSigned { dir: dir.path().join("tls"), names: vec!["localhost".into(), "127.0.0.1".into()] };
        let tls = (self.kind == Kind::Https)
            .then(|| Tls::load(self.config.unwrap_or(TlsConfig::SelfSigned(own))).unwrap());
        let listener = match (self.kind, &tls) {
            (Kind::Redirect { port }, _) => {
                Listener::Redirect { socket, host: "configured.example".into(), port }
            }
            (_, Some(tls)) => Listener::Https { socket, tls: tls.clone() },
            (_, None) => Listener::Http { socket },
        };
        let (inside, stop) = (Arc::new(Inside::default()), CancellationToken::new());
        let server = Server {
            application: Arc::new(router(&inside)),
            answers: Arc::new(TestAnswers),
            limits: self.limits,
            is_exempt: self.is_exempt,
        };
        let task = tokio::spawn(listen::serve(server, vec![listener], stop.clone(), self.grace));
        Running { address, inside, stop, task, tls, _dir: dir }
    }
}

pub async fn start(kind: Kind) -> Running {
    Start::new(kind).go().await
}

impl Running {
    pub fn certificate(&self) -> PathBuf {
        self.tls.as_ref().unwrap().certificate().file
    }

    pub async fn tcp(&self) -> TcpStream {
        in_time("connecting", TcpStream::connect(self.address)).await.unwrap()
    }

    /// A connection from another address of loopback.
    pub async fn tcp_from(&self, source: &str) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{source}:0").parse().unwrap()).unwrap();
        in_time("connecting", socket.connect(self.address)).await.unwrap()
    }

    pub async fn tls(&self, protocols: &[&str]) -> TlsStream<TcpStream> {
        let certificate = CertificateDer::from_pem_file(self.certificate()).unwrap();
        tls(self.tcp().await, certificate, protocols).await.unwrap()
    }

    /// A connection for the kind of listener.
    pub async fn connect(&self) -> Box<dyn Stream> {
        if self.tls.is_some() { Box::new(self.tls(&["http/1.1"]).await) } else { Box::new(self.tcp().await) }
    }

    pub async fn ended(self) -> Stopped {
        self.stop.cancel();
        in_time("the server's end", self.task).await.unwrap()
    }
}

pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub async fn tls(
    tcp: TcpStream,
    trusted: CertificateDer<'static>,
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    in_time("the handshake", tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp)).await
}

/// A received response.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let first = all.next();
        assert!(all.next().is_none(), "{name} is there twice: {self:?}");
        first
    }
}

/// Reads until the server closes the connection.
pub async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset connection ends with an error; the bytes before it are used.
    let _ = in_time("the end of the connection", stream.read_to_end(&mut bytes)).await;
    bytes
}

/// Reads until these bytes have come. Returns everything up to them.
pub async fn read_until(stream: &mut (impl AsyncRead + Unpin), end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let byte = in_time(end, stream.read_u8()).await;
        let so_far = bytes.escape_ascii().to_string();
        bytes.push(byte.unwrap_or_else(|e| panic!("{e} after {so_far}")));
    }
    String::from_utf8(bytes).unwrap()
}

pub async fn send(stream: &mut (impl AsyncWrite + Unpin), bytes: impl AsRef<[u8]>) {
    in_time("sending", stream.write_all(bytes.as_ref())).await.unwrap();
    in_time("flushing", stream.flush()).await.unwrap();
}

/// Reads one response with a length; further bytes stay unread.
pub async fn read_response(stream: &mut (impl AsyncRead + Unpin)) -> Answer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = in_time("a head", stream.read_u8()).await;
        let so_far = head.escape_ascii().to_string();
        head.push(byte.unwrap_or_else(|e| panic!("{e} after {so_far}")));
    }
    let mut answers = answers(&head, Bodies::Apart);
    let mut answer = answers.remove(0);
    let length = answer.header("content-length").map_or(0, |it| it.parse().unwrap());
    let mut body = vec![0; length];
    in_time("a body", stream.read_exact(&mut body)).await.unwrap();
    answer.body = String::from_utf8(body).unwrap();
    answer
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Bodies {
    /// The bytes contain only heads.
    Apart,
    Inline,
}

/// Parses consecutive responses, each with a `content-length`.
pub fn answers(mut bytes: &[u8], bodies: Bodies) -> Vec<Answer> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut parsed = httparse::Response::new(&mut headers);
        let text = bytes.escape_ascii();
        let status = parsed.parse(bytes).unwrap_or_else(|e| panic!("{e}: {text}"));
        let httparse::Status::Complete(length) = status else { panic!("a partial response: {text}") };
        let own = |h: &httparse::Header<'_>| {
            (h.name.to_ascii_lowercase(), String::from_utf8(h.value.to_vec()).unwrap())
        };
        let headers: Vec<_> = parsed.headers.iter().map(own).collect();
        let mut answer = Answer { status: parsed.code.unwrap(), headers, body: String::new() };
        bytes = &bytes[length..];
        if bodies == Bodies::Inline {
            let length = answer.header("content-length").map_or(0, |it| it.parse().unwrap());
            let (body, after) = bytes.split_at_checked(length).expect("the whole body");
            answer.body = String::from_utf8(body.to_vec()).unwrap();
            bytes = after;
        }
        all.push(answer);
    }
    all
}

/// Sends bytes on a new connection, and parses the responses until it is closed.
pub async fn exchange_http1(server: &Running, bytes: impl AsRef<[u8]>) -> Vec<Answer> {
    let mut stream = server.connect().await;
    send(&mut stream, bytes).await;
    answers(&read_to_end(&mut stream).await, Bodies::Inline)
}

/// Asserts that the response has an error body.
pub fn assert_error(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json; charset=utf-8"), "{answer:?}");
    for header in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "date"] {
        assert!(answer.header(header).is_some(), "no {header}: {answer:?}");
    }
    let id = answer.header("x-request-id").expect("a request id");
    assert!(answer.body.starts_with(r#"{"error":{"code":""#), "{answer:?}");
    assert!(answer.body.ends_with(&format!(r#""requestId":"{id}"}}}}"#)), "{answer:?}");
}

pub type Http2 = (h2::client::SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>);

/// An HTTP/2 client on a connection for the kind of listener.
pub async fn http2(server: &Running, builder: &h2::client::Builder) -> Http2 {
    let stream: Box<dyn Stream> = match server.tls {
        Some(_) => Box::new(server.tls(&["h2"]).await),
        None => Box::new(server.tcp().await),
    };
    let (client, connection) = in_time("HTTP/2", builder.handshake(stream)).await.unwrap();
    let task = tokio::spawn(connection);
    (in_time("HTTP/2", client.ready()).await.unwrap(), task)
}

pub fn request(method: &str, path: &str) -> axum::http::Request<()> {
    axum::http::Request::builder().method(method).uri(format!("https://localhost{path}")).body(()).unwrap()
}

/// Reads an HTTP/2 body to its end.
pub async fn collect(mut body: h2::RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(piece) = in_time("a piece of the body", body.data()).await {
        let piece = piece?;
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// One request over HTTP/2, as an [`Answer`].
pub async fn exchange(
    client: &mut h2::client::SendRequest<Bytes>,
    request: axum::http::Request<()>,
) -> Answer {
    let (response, _) = client.send_request(request, true).unwrap();
    let (parts, body) = in_time("an answer", response).await.unwrap().into_parts();
    let own =
        |(n, v): (&axum::http::HeaderName, &HeaderValue)| (n.to_string(), v.to_str().unwrap().to_owned());
    let headers = parts.headers.iter().map(own).collect();
    let body = String::from_utf8(collect(body).await.unwrap()).unwrap();
    Answer { status: parts.status.as_u16(), headers, body }
}
