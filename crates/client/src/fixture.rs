//! A small service in a thread of its own, for the examples of the documentation and the tests of this crate. It keeps sandboxes in
//! memory, reads no more of a command than `echo`, `cat`, `sleep`, `pwd`, `true` and `exit`, and can be told to fail. Only with the
//! feature `fixture`; what a real service does is tested in `e2e`.

mod command;
mod events;
mod executions;
mod files;
mod images;
mod ports;
mod reply;
mod service;
mod socket;

use std::collections::VecDeque;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Client;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// What the next request gets instead of its answer.
#[derive(Debug, Clone, Copy)]
pub enum Trouble {
    /// Refused, without being done; 0 for no `Retry-After`.
    Status { status: u16, code: &'static str, retry_after_s: u64 },
    /// Done, and the connection is cut instead of answering.
    LostAnswer,
    /// Not answered for so long.
    Silence(Duration),
}

/// The service.
pub struct Fixture {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    troubles: Mutex<VecDeque<Trouble>>,
    state: Mutex<service::State>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an example with a client of a new service. Panics with its error.
pub fn run(example: impl AsyncFnOnce(Client) -> Result<(), Box<dyn Error>>) {
    let result = (|| {
        let fixture = Fixture::start()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(example(fixture.client()?))
    })();
    if let Err(error) = result {
        panic!("the example fails: {error}");
    }
}

impl Fixture {
    pub fn start() -> Result<Self, Box<dyn Error>> {
        let shared = Arc::new(Shared::default());
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    pub fn client(&self) -> crate::Result<Client> {
        self.builder().build()
    }

    pub fn builder(&self) -> crate::ClientBuilder {
        Client::builder().url(format!("http://{}", self.address)).key("sk_test")
    }

    /// For the next request; several are for several requests.
    pub fn trouble(&self, trouble: Trouble) {
        lock(&self.shared.troubles).push_back(trouble);
    }

    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// How many commands it has run.
    pub fn executed(&self) -> usize {
        lock(&self.shared.state).executed
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| answer(&shared, request));
            let connection = hyper::server::conn::http1::Builder::new();
            // A connection that breaks off is the client's affair, or what it was told to do.
            let _ = connection.serve_connection(TokioIo::new(socket), service).with_upgrades().await;
        });
    }
}

async fn answer(shared: &Arc<Shared>, mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Cut> {
    if let Some(response) = socket::answer(shared, &mut request) {
        return Ok(response);
    }
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let seen = Seen { method: head.method, path, headers: head.headers, body };
    lock(&shared.seen).push(seen.clone());
    let trouble = lock(&shared.troubles).pop_front();
    match trouble {
        Some(Trouble::Status { status, code, retry_after_s }) => {
            let mut response = reply::refusal(status, code, "as the test asked").response();
            if retry_after_s > 0 {
                response.headers_mut().insert("retry-after", retry_after_s.into());
            }
            return Ok(response);
        }
        Some(Trouble::Silence(time)) => tokio::time::sleep(time).await,
        Some(Trouble::LostAnswer) | None => {}
    }
    let (reply, takes) = lock(&shared.state).answer(&seen);
    tokio::time::sleep(takes).await;
    if matches!(trouble, Some(Trouble::LostAnswer)) {
        return Err(Cut);
    }
    Ok(reply.response())
}

/// A value of a query.
fn decoded(value: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        match hex.filter(|_| byte == b'%') {
            Some(decoded) => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut off")
    }
}

impl Error for Cut {}
