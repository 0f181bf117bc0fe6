//! Accepts connections on all listeners until it is told to stop, and knows when the last of them has ended. Called once by the
//! program (and once more for each further router). It owns every task it starts: dropping its future ends them all.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::answers::Answers;
use crate::connection::{self, Context};
use crate::redirect::Destination;
use crate::service::{Application, Target};
use crate::settings::Limits;
use crate::sockets;
use crate::tasks::Tasks;
use crate::tls::{Tls, watch};

/// After an accept that failed, for want of files mostly: trying again at once would only burn the processor.
const AFTER_FAILURE: Duration = Duration::from_millis(50);
/// How often the same trouble of a listener is logged.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// A socket and what is spoken on it.
pub enum Listener {
    /// HTTP/1.1 and 2 over TLS. Plain HTTP that comes here is sent to HTTPS as on a [`Listener::Redirect`].
    Https { socket: TcpListener, tls: Tls },
    /// HTTP/1.1 and 2 without TLS: behind a proxy that has it, or for metrics on loopback.
    Http { socket: TcpListener },
    /// Every request is answered `301` to HTTPS on `port`, at the host that the request names, or at `host` if that is none.
    Redirect { socket: TcpListener, host: String, port: u16 },
}

/// What is served.
pub struct Server {
    pub application: Arc<dyn Application>,
    pub answers: Arc<dyn Answers>,
    pub limits: Limits,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections and requests that were still going on when the grace was over.
    pub cut_off: usize,
}

/// Serves until `stop`, then waits for what is going on, at most `grace`: no connection is accepted any more, idle ones are
/// closed, HTTP/2 clients are told to go away. Streams that would not end by themselves have to be told by the caller.
pub async fn serve(
    server: Server,
    listeners: Vec<Listener>,
    stop: CancellationToken,
    grace: Duration,
) -> Stopped {
    let tasks = Tasks::new();
    // Dropping this future kills what it started.
    let _kill = tasks.kill_on_drop();
    let mut running = JoinSet::new();
    let limits = Arc::new(server.limits);
    for listener in listeners {
        let (socket, security, target) = match listener {
            Listener::Https { socket, tls } => {
                running.spawn(watch::watch(tls.clone(), stop.clone()));
                let to = destination_of(&socket);
                (socket, Some((tls, Arc::new(to))), Target::Application(Arc::clone(&server.application)))
            }
            Listener::Http { socket } => (socket, None, Target::Application(Arc::clone(&server.application))),
            Listener::Redirect { socket, host, port } => {
                (socket, None, Target::Redirect(Arc::new(Destination { host, port })))
            }
        };
        let context = Arc::new(Context {
            target,
            security,
            answers: server.answers.clone(),
            limits: limits.clone(),
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        running.spawn(accept(socket, context));
    }
    while running.join_next().await.is_some() {}
    Stopped { cut_off: tasks.finish(grace).await }
}

/// Where plain HTTP on an HTTPS socket is sent: to the same socket.
fn destination_of(socket: &TcpListener) -> Destination {
    let address = socket.local_addr().ok();
    let host = address.map(|it| it.ip()).filter(|ip| !ip.is_unspecified());
    Destination {
        host: host.map_or_else(|| "localhost".to_owned(), |ip| ip.to_string()),
        port: address.map_or(443, |it| it.port()),
    }
}

/// Accepts until the stop. The permit of a connection is given back when its task ends, however it does.
async fn accept(socket: TcpListener, context: Arc<Context>) {
    if let Err(error) = sockets::tune(&socket, context.limits.write_timeout) {
        tracing::warn!(%error, "a listening socket does not take all its options");
    }
    let places = Arc::new(Semaphore::new(context.limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let (mut full, mut failing) = (Seldom::default(), Seldom::default());
    while let Some(accepted) = context.stop.run_until_cancelled(socket.accept()).await {
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_the_clients(&error) {
                    if let Some(times) = failing.happened() {
                        tracing::error!(%error, times, "cannot accept connections");
                    }
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            if let Some(times) = full.happened() {
                let limit = context.limits.max_connections;
                tracing::warn!(limit, times, "all connections are taken; further ones are closed");
            }
            continue;
        };
        let context = context.clone();
        let tasks = context.tasks.clone();
        tasks.spawn(async move {
            connection::run(context, tcp, peer).await;
            drop(place);
        });
    }
}

/// The connection went away before it was accepted.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Something that is worth a log line now and then only.
#[derive(Default)]
struct Seldom {
    said: Option<Instant>,
    since: u64,
}

impl Seldom {
    /// How often it happened since it was last said, when it is time to say it again.
    fn happened(&mut self) -> Option<u64> {
        self.since += 1;
        if self.said.is_some_and(|at| at.elapsed() < SAY_AGAIN) {
            return None;
        }
        self.said = Some(Instant::now());
        Some(std::mem::take(&mut self.since))
    }
}
