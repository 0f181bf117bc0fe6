//! Accepts connections on all listeners until the service stops, and waits for the last of them. The program calls it
//! once for each router. It owns its tasks: dropping its future ends them all.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::answers::Answers;
use crate::connection::{self, Context};
use crate::limiter::{ConnectionLimiter, IsExempt};
use crate::redirect::HttpsAuthority;
use crate::service::{Application, RequestTarget};
use crate::settings::Limits;
use crate::sockets;
use crate::tasks::Tasks;
use crate::tls::{Tls, watch};

/// The pause after a failed accept, which mostly means that no file descriptor is free. Without it the loop would spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);
/// How often the same condition of a listener is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// A listening socket and its protocol.
pub enum Listener {
    /// HTTP/1.1 and 2 over TLS. Plain HTTP is redirected to HTTPS as on a [`Listener::Redirect`].
    Https { socket: TcpListener, tls: Tls },
    /// HTTP/1.1 and 2 without TLS: behind a proxy that terminates TLS, or for metrics on loopback.
    Http { socket: TcpListener },
    /// Every request is redirected (`301`) to HTTPS on `port`, at the request's host or, without a usable one, at `host`.
    Redirect { socket: TcpListener, host: String, port: u16 },
}

/// What a server needs besides its listeners.
pub struct Server {
    pub application: Arc<dyn Application>,
    pub answers: Arc<dyn Answers>,
    pub limits: Limits,
    /// Source addresses without limits of their own, such as reverse proxies.
    pub is_exempt: IsExempt,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped {
    /// Connections and requests that were still active when the grace period ended.
    pub cut_off: usize,
}

/// Serves until `stop`, then waits at most `grace` for active requests. Meanwhile no connection is accepted, idle ones are closed
/// and HTTP/2 clients get a GOAWAY. The caller ends streams that have no end of their own.
pub async fn serve(
    server: Server,
    listeners: Vec<Listener>,
    stop: CancellationToken,
    grace: Duration,
) -> Stopped {
    let tasks = Tasks::new();
    // Dropping this future kills its tasks.
    let _kill = tasks.kill_on_drop();
    let mut running = JoinSet::new();
    let limits = Arc::new(server.limits);
    let limiter = ConnectionLimiter::new(&limits, server.is_exempt);
    for listener in listeners {
        let (socket, security, target) = match listener {
            Listener::Https { socket, tls } => {
                running.spawn(watch::watch(tls.clone(), stop.clone()));
                let to = destination_of(&socket);
                (
                    socket,
                    Some((tls, Arc::new(to))),
                    RequestTarget::Application(Arc::clone(&server.application)),
                )
            }
            Listener::Http { socket } => {
                (socket, None, RequestTarget::Application(Arc::clone(&server.application)))
            }
            Listener::Redirect { socket, host, port } => {
                (socket, None, RequestTarget::Redirect(Arc::new(HttpsAuthority { host, port })))
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
        running.spawn(accept(socket, context, Arc::clone(&limiter)));
    }
    while running.join_next().await.is_some() {}
    Stopped { cut_off: tasks.finish(grace).await }
}

/// The redirect target of plain HTTP on an HTTPS socket: the same socket.
fn destination_of(socket: &TcpListener) -> HttpsAuthority {
    let address = socket.local_addr().ok();
    let host = address.map(|it| it.ip()).filter(|ip| !ip.is_unspecified());
    HttpsAuthority {
        host: host.map_or_else(|| "localhost".to_owned(), |ip| ip.to_string()),
        port: address.map_or(443, |it| it.port()),
    }
}

/// Accepts connections until the service stops. A connection's task owns its permits, so they are free again however it ends.
async fn accept(socket: TcpListener, context: Arc<Context>, limiter: Arc<ConnectionLimiter>) {
    if let Err(error) = sockets::tune(&socket, context.limits.write_timeout) {
        tracing::warn!(%error, "cannot set all options of a listening socket");
    }
    let slots = Arc::new(Semaphore::new(context.limits.max_connections.min(Semaphore::MAX_PERMITS)));
    let (mut full, mut crowded, mut failing) =
        (LogThrottle::default(), LogThrottle::default(), LogThrottle::default());
    while let Some(accepted) = context.stop.run_until_cancelled(socket.accept()).await {
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !is_aborted_by_client(&error) {
                    if let Some(times) = failing.count() {
                        tracing::error!(%error, times, "cannot accept connections");
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
                continue;
            }
        };
        let Some(permit) = limiter.admit(peer.ip()) else {
            if let Some(times) = crowded.count() {
                let limit = context.limits.max_connections_per_address;
                tracing::warn!(%peer, limit, times, "an address has too many connections; further ones are closed");
            }
            continue;
        };
        let Ok(slot) = slots.clone().try_acquire_owned() else {
            if let Some(times) = full.count() {
                let limit = context.limits.max_connections;
                tracing::warn!(limit, times, "there are too many connections; further ones are closed");
            }
            continue;
        };
        let context = context.clone();
        let tasks = context.tasks.clone();
        tasks.spawn(async move {
            connection::run(context, tcp, peer, &permit).await;
            drop((permit, slot));
        });
    }
}

/// Whether the connection ended before it was accepted.
fn is_aborted_by_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// Logs a repeated condition at most every [`LOG_INTERVAL`].
#[derive(Default)]
struct LogThrottle {
    logged: Option<Instant>,
    since: u64,
}

impl LogThrottle {
    /// Counts an occurrence. Returns the occurrences since the last log line when the next one is due.
    fn count(&mut self) -> Option<u64> {
        self.since += 1;
        if self.logged.is_some_and(|at| at.elapsed() < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(Instant::now());
        Some(std::mem::take(&mut self.since))
    }
}
