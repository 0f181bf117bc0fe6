//! A proxy that injects faults between a client and a real service: the service is the router of `sandboxd` on the fake driver.
//!
//! It forwards every request as it is, records it, and answers, delays or cuts those that a test names. It implements no endpoint.

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use sandboxd::testing::TestService;
use sandboxd_client::{Client, ClientBuilder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

/// A request that the client sent.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What happens to the next request.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// It is refused and not forwarded; 0 for no `Retry-After`.
    Status { status: u16, code: &'static str, retry_after_s: u64 },
    /// The service carries it out, and the connection is closed instead of answering.
    LostAnswer,
    /// It is forwarded so much later.
    Silence(Duration),
    /// The connection is closed after so many bytes of the answer's body.
    CutAfter(usize),
}

pub struct Proxy {
    pub service: TestService,
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct Shared {
    upstream: SocketAddr,
    seen: Mutex<Vec<Seen>>,
    faults: Mutex<VecDeque<Fault>>,
    /// Changes when every answer that is under way is to be cut.
    cuts: watch::Sender<u64>,
}

type Body = UnsyncBoxBody<Bytes, Cut>;

impl Proxy {
    /// A proxy in front of a service of its own.
    pub fn start() -> Self {
        let service = TestService::start().unwrap();
        let shared = Arc::new(Shared {
            upstream: service.address(),
            seen: Mutex::default(),
            faults: Mutex::default(),
            cuts: watch::Sender::new(0),
        });
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { service, address, shared, stop: Some(stop), thread: Some(thread) }
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().url(format!("http://{}", self.address)).key(self.service.key())
    }

    pub fn client(&self) -> Client {
        self.builder().build().unwrap()
    }

    /// A client whose requests do not pass the proxy.
    pub fn direct(&self) -> Client {
        Client::builder().url(self.service.url()).key(self.service.key()).build().unwrap()
    }

    /// For the next request; several are for several requests.
    pub fn inject(&self, fault: Fault) {
        lock(&self.shared.faults).push_back(fault);
    }

    /// Closes the connections of all answers that are under way.
    pub fn cut_answers(&self) {
        self.shared.cuts.send_modify(|count| *count += 1);
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| answer(&shared, request));
            // A connection that breaks is what the test asked for, or the client's doing.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
}

async fn answer(shared: &Shared, request: Request<Incoming>) -> Result<Response<Body>, Cut> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let seen = Seen { method: head.method.clone(), headers: head.headers.clone(), body: body.clone() };
    lock(&shared.seen).push(seen);
    let fault = lock(&shared.faults).pop_front();
    match fault {
        Some(Fault::Status { status, code, retry_after_s }) => {
            return Ok(refusal(status, code, retry_after_s));
        }
        Some(Fault::Silence(time)) => tokio::time::sleep(time).await,
        _ => {}
    }
    let cuts = shared.cuts.subscribe();
    let response = forward(shared.upstream, Request::from_parts(head, Full::new(body))).await?;
    match fault {
        Some(Fault::LostAnswer) => {
            // Read to its end: then the service has done all of it.
            let _ = response.into_body().collect().await;
            Err(Cut)
        }
        Some(Fault::CutAfter(bytes)) => Ok(response.map(|body| cut_after(body, bytes))),
        _ => Ok(response.map(|body| {
            let pieces = stream::unfold((body, cuts), async |(mut body, mut cuts)| {
                let frame = tokio::select! {
                    frame = body.frame() => frame?.map_err(|_| Cut),
                    _ = cuts.changed() => Err(Cut),
                };
                Some((frame, (body, cuts)))
            });
            StreamBody::new(pieces.boxed()).boxed_unsync()
        })),
    }
}

async fn forward(upstream: SocketAddr, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Cut> {
    let socket = TcpStream::connect(upstream).await.map_err(|_| Cut)?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.map_err(|_| Cut)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|_| Cut)
}

fn refusal(status: u16, code: &str, retry_after_s: u64) -> Response<Body> {
    let error = serde_json::json!({
        "error": { "code": code, "message": "as the test asked", "details": {}, "requestId": "req_proxy" },
    });
    let mut response = Response::builder().status(status).header("content-type", "application/json");
    if retry_after_s > 0 {
        response = response.header("retry-after", retry_after_s);
    }
    let body = Full::from(error.to_string()).map_err(|never| match never {});
    response.body(body.boxed_unsync()).unwrap()
}

fn cut_after(body: Incoming, bytes: usize) -> Body {
    let pieces = stream::unfold((body, bytes), async |(mut body, left)| {
        if left == 0 {
            // While the body waits, hyper sends what it has; otherwise not even the head would arrive.
            tokio::time::sleep(Duration::from_millis(50)).await;
            return Some((Err(Cut), (body, 0)));
        }
        let frame = body.frame().await?.map_err(|_| Cut);
        let frame = frame.map(|frame| {
            let data = frame.into_data().unwrap_or_default();
            data.slice(..data.len().min(left))
        });
        let sent = frame.as_ref().map_or(left, Bytes::len);
        Some((frame.map(Frame::data), (body, left - sent)))
    });
    StreamBody::new(pieces.boxed()).boxed_unsync()
}

#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut by the test")
    }
}

impl Error for Cut {}
