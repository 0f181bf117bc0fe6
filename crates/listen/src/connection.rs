//! One connection: detects the protocol, serves requests until the connection ends or the service stops, and sends
//! the last response. An error ends only this connection. It is logged at debug level, because clients can cause it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use axum::response::Response;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::answers::{Answers, Fault};
use crate::head_filter::{HeadFilter, HostRule, RefusedHead};
use crate::leftover::Drainer;
use crate::limiter::ConnectionPermit;
use crate::redirect::HttpsAuthority;
use crate::service::{Dispatch, PeerAddr, RequestTarget};
use crate::settings::Limits;
use crate::takeover::TakeoverSlot;
use crate::tasks::Tasks;
use crate::tls::Tls;
use crate::unread::StreamExecutor;
use crate::wire::Wire;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first byte of a TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// The size of hyper's HTTP/1 buffers in addition to the largest head. A client that stops reading fills one.
const HTTP1_SPARE_BYTES: usize = 8 * 1024;
/// The most encrypted bytes that are not sent yet.
const TLS_SEND_BYTES: usize = 16 * 1024;
/// The receive windows of one stream and of the whole connection.
const STREAM_WINDOW_BYTES: u32 = 128 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// The most bytes of a stream that are queued for sending.
const STREAM_SEND_BYTES: usize = 64 * 1024;
/// Headers up to this size get an error response of the service; h2 refuses larger ones itself.
const HTTP2_HEADER_BYTES: u32 = 256 * 1024;
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout for an idle client to react to a GOAWAY.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while the service stops.
const GOAWAY_TIMEOUT_STOPPING: Duration = Duration::from_secs(1);
/// The most bytes of a response of [`Answers`].
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// The shared state of one listener's connections.
pub struct Context {
    pub target: RequestTarget,
    /// The TLS configuration and the redirect target for plain HTTP.
    pub security: Option<(Tls, Arc<HttpsAuthority>)>,
    pub answers: Arc<dyn Answers>,
    pub limits: Arc<Limits>,
    pub tasks: Tasks,
    pub stop: CancellationToken,
}

/// Why a connection ended early.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error(transparent)]
    Prepare(io::Error),
    #[error("cannot send the response to a refused request: {fault}")]
    Answer { fault: Fault, source: io::Error },
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("the client did not close after the GOAWAY of the stopping service")]
    OpenWhileStopping,
    #[error("the client was idle for too long and did not close after the GOAWAY")]
    Idle,
    #[error("the client left all responses unread for too long")]
    Unread,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves a connection to its end.
pub async fn run(context: Arc<Context>, tcp: TcpStream, peer: SocketAddr, permit: &ConnectionPermit) {
    let Some(ready) = context.stop.run_until_cancelled(Box::pin(prepare(&context, tcp, permit))).await else {
        return;
    };
    let ended = match ready {
        Ok(Some((wire, protocol, target))) => {
            let peer = PeerAddr(peer);
            match protocol {
                Protocol::Http1 => Box::pin(http1(&context, wire, peer, target)).await,
                Protocol::Http2 => Box::pin(http2(&context, wire, peer, target)).await,
            }
        }
        Ok(None) => Ok(()),
        Err(error) => Err(ConnectionError::Prepare(error)),
    };
    if let Err(error) = ended {
        let reason: &(dyn std::error::Error + 'static) = &error;
        tracing::debug!(%peer, reason, "a connection failed");
    }
}

/// Does the TLS handshake, if there is one, and detects the protocol. `None`: the client closed without sending a byte.
async fn prepare(
    context: &Context,
    tcp: TcpStream,
    permit: &ConnectionPermit,
) -> io::Result<Option<(Wire, Protocol, RequestTarget)>> {
    let limits = &context.limits;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake took too long");
    let Some((tls, destination)) = &context.security else {
        return sniff(Wire::plain(tcp, limits.write_timeout), limits, context.target.clone()).await;
    };
    let handshake = async {
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        if first[0] != TLS_HANDSHAKE && first[0].is_ascii_graphic() {
            let redirect = RequestTarget::Redirect(destination.clone());
            return Ok(Some((Wire::plain(tcp, limits.write_timeout), Some(Protocol::Http1), redirect)));
        }
        // A client that has not sent anything yet holds no handshake slot.
        let _handshake = permit.handshake().await;
        let acceptor = TlsAcceptor::from(tls.server_config());
        let stream =
            acceptor.accept_with(tcp, |session| session.set_buffer_limit(Some(TLS_SEND_BYTES))).await?;
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Some(Protocol::Http2),
            Some(_) => Some(Protocol::Http1),
            None => None,
        };
        io::Result::Ok(Some((Wire::tls(stream, limits.write_timeout), protocol, context.target.clone())))
    };
    match timeout(limits.handshake_timeout, handshake).await.map_err(late)?? {
        None => Ok(None),
        Some((wire, Some(protocol), target)) => Ok(Some((wire, protocol, target))),
        Some((wire, None, target)) => sniff(wire, limits, target).await,
    }
}

/// Reads until it is clear whether the client speaks HTTP/2 with prior knowledge.
async fn sniff(
    mut wire: Wire,
    limits: &Limits,
    target: RequestTarget,
) -> io::Result<Option<(Wire, Protocol, RequestTarget)>> {
    let mut read = Vec::with_capacity(PREFACE.len());
    let mut time_left = limits.idle_timeout;
    loop {
        let mut bytes = [0; PREFACE.len()];
        let limit = PREFACE.len() - read.len();
        let Ok(count) = timeout(time_left, wire.read(&mut bytes[..limit])).await else {
            // The bytes may be a partial head, which the head filter answers.
            break;
        };
        let count = count?;
        read.extend_from_slice(&bytes[..count]);
        if count == 0 || !PREFACE.starts_with(&read) || read.len() == PREFACE.len() {
            break;
        }
        time_left = limits.head_timeout;
    }
    if read.is_empty() {
        return Ok(None);
    }
    let protocol = if read == PREFACE { Protocol::Http2 } else { Protocol::Http1 };
    wire.push_back(read);
    Ok(Some((wire, protocol, target)))
}

async fn http1(
    context: &Context,
    wire: Wire,
    peer: PeerAddr,
    target: RequestTarget,
) -> Result<(), ConnectionError> {
    let activity = Activity::new();
    let host = if matches!(target, RequestTarget::Redirect(_)) { HostRule::Any } else { HostRule::Required };
    let filter = HeadFilter::new(wire, activity.clone(), context.limits.clone(), host);
    let slot = TakeoverSlot::default();
    let mut connection = http1::Builder::new()
        // The head filter has the timeout, because hyper would close without a response.
        .header_read_timeout(None)
        .max_buf_size(context.limits.max_head_bytes + HTTP1_SPARE_BYTES)
        .serve_connection(
            TokioIo::new(filter),
            dispatch(context, target, peer, activity, Some(slot.clone())),
        );
    let mut stopping = false;
    let ended = loop {
        tokio::select! {
            ended = std::future::poll_fn(|cx| connection.poll_without_shutdown(cx)) => break ended,
            () = context.stop.cancelled(), if !stopping => {
                stopping = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
        }
    };
    let ended = match ended {
        // hyper regards a response as written when it has buffered it. Polled as a future, it also flushes.
        Ok(()) if !slot.is_taken() => (&mut connection).await,
        ended => ended,
    };
    let parts = connection.into_parts();
    if slot.is_taken() && ended.is_ok() {
        let wire = parts.io.into_inner().into_wire(&parts.read_buf);
        // Boxed to keep the connection's future small.
        Box::pin(slot.run(wire)).await;
        return Ok(());
    }
    let mut rest = parts.io.into_inner().into_rest();
    if let Some(refusal) = rest.refusal {
        let sent = Box::pin(answer(&mut rest.wire, context.answers.as_ref(), &refusal)).await;
        sent.map_err(|source| ConnectionError::Answer { fault: refusal.fault, source })?;
    }
    if rest.unfinished {
        let time_left = context.limits.linger_timeout;
        // Boxed to keep the connection's future small.
        Box::pin(rest.wire.linger(if stopping { time_left.min(GOAWAY_TIMEOUT_STOPPING) } else { time_left }))
            .await;
    } else {
        rest.wire.close().await;
    }
    ended.map_err(ConnectionError::from)
}

fn dispatch(
    context: &Context,
    target: RequestTarget,
    peer: PeerAddr,
    activity: Arc<Activity>,
    slot: Option<TakeoverSlot>,
) -> Dispatch {
    let drainer =
        Drainer { tasks: context.tasks.clone(), limits: context.limits.clone(), stop: context.stop.clone() };
    Dispatch {
        target,
        answers: context.answers.clone(),
        limits: context.limits.clone(),
        peer,
        activity,
        drainer: Arc::new(drainer),
        slot,
    }
}

/// Sends the response to a refused head, the last one of its connection.
async fn answer(wire: &mut Wire, answers: &dyn Answers, refusal: &RefusedHead) -> io::Result<()> {
    let response = answers.fault(refusal.fault, refusal.request_id.as_ref());
    let bytes = encode(response, refusal.bodiless).await;
    wire.write_all(&bytes).await?;
    wire.flush().await
}

async fn encode(response: Response, bodiless: bool) -> Vec<u8> {
    let (mut parts, body) = response.into_parts();
    // A response that is too long or fails is sent without its body; the status is what matters.
    let body = to_bytes(body, MAX_ANSWER_BYTES).await.unwrap_or_default();
    for ours in [CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING] {
        parts.headers.remove(ours);
    }
    let status = parts.status;
    let mut bytes =
        format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or_default())
            .into_bytes();
    for (name, value) in &parts.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    let last = format!("connection: close\r\ncontent-length: {}\r\ndate: {}\r\n\r\n", body.len(), date());
    bytes.extend_from_slice(last.as_bytes());
    if !bodiless {
        bytes.extend_from_slice(&body);
    }
    bytes
}

/// The current time in HTTP's format.
fn date() -> String {
    let format = time::macros::format_description!(
        "[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT"
    );
    time::OffsetDateTime::now_utc().format(&format).unwrap_or_default()
}

async fn http2(
    context: &Context,
    wire: Wire,
    peer: PeerAddr,
    target: RequestTarget,
) -> Result<(), ConnectionError> {
    let (limits, activity) = (&context.limits, Activity::new());
    // hyper's defaults bound floods of resets and of header frames; tests check that.
    let executor = StreamExecutor {
        tasks: context.tasks.clone(),
        write_timeout: limits.write_timeout,
        activity: Arc::clone(&activity),
    };
    let connection = http2::Builder::new(executor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_streams)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(STREAM_SEND_BYTES)
        .max_header_list_size(HTTP2_HEADER_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(wire), dispatch(context, target, peer, activity.clone(), None));
    let mut connection = std::pin::pin!(connection);
    let mut stopping = false;
    let mut next_check_timer =
        std::pin::pin!(tokio::time::sleep(limits.idle_timeout.min(limits.write_timeout)));
    let mut goaway_deadline = None;
    loop {
        tokio::select! {
            ended = &mut connection => return ended.map_err(ConnectionError::from),
            () = context.stop.cancelled(), if !stopping => {
                stopping = true;
                connection.as_mut().graceful_shutdown();
                next_check_timer.as_mut().reset(tokio::time::Instant::now() + GOAWAY_TIMEOUT_STOPPING);
            }
            // The rest of a reset response is gone; what h2 still has queued for it is freed with the connection, so no
            // further streams are accepted on it.
            () = activity.unread.notified() => connection.as_mut().graceful_shutdown(),
            () = &mut next_check_timer => {
                if stopping && activity.idle_for().is_some_and(|still| still >= GOAWAY_TIMEOUT_STOPPING) {
                    return Err(ConnectionError::OpenWhileStopping);
                }
                if goaway_deadline.is_some_and(|at| tokio::time::Instant::now() >= at) {
                    return Err(ConnectionError::Idle);
                }
                if activity.stalled_for().is_some_and(|still| still >= limits.write_timeout) {
                    return Err(ConnectionError::Unread);
                }
                if activity.idle_for().is_some_and(|still| still >= limits.idle_timeout) && goaway_deadline.is_none() {
                    connection.as_mut().graceful_shutdown();
                    goaway_deadline = Some(tokio::time::Instant::now() + GOAWAY_TIMEOUT);
                }
                let next = goaway_deadline.unwrap_or_else(|| next_check(&activity, limits));
                let soon = tokio::time::Instant::now() + GOAWAY_TIMEOUT_STOPPING / 4;
                next_check_timer.as_mut().reset(if stopping { next.min(soon) } else { next });
            }
        }
    }
}

/// The earliest time at which the connection can have been idle or stalled for too long.
fn next_check(activity: &Activity, limits: &Limits) -> tokio::time::Instant {
    let (limit, still) = match (activity.idle_for(), activity.stalled_for()) {
        (Some(still), _) => (limits.idle_timeout, still),
        (None, Some(still)) => (limits.write_timeout, still),
        (None, None) => (limits.idle_timeout.min(limits.write_timeout), Duration::ZERO),
    };
    tokio::time::Instant::now() + limit.saturating_sub(still) + Duration::from_millis(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::HeaderValue;

    async fn encoded(response: Response, bodiless: bool) -> String {
        let text = String::from_utf8(encode(response, bodiless).await).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let (lines, date) = head.rsplit_once("\r\n").unwrap();
        let date = date.strip_prefix("date: ").unwrap();
        // Such as `Thu, 01 Jan 1970 00:00:00 GMT`.
        assert_eq!(date.len(), 29, "{date}");
        assert!(date.ends_with(" GMT"), "{date}");
        format!("{lines}\r\n\r\n{body}")
    }

    fn response(body: Body) -> Response {
        let mut response = Response::new(body);
        *response.status_mut() = axum::http::StatusCode::URI_TOO_LONG;
        response
    }

    #[tokio::test]
    async fn a_refusal_is_the_last_response_of_its_connection() {
        let text = encoded(response(Body::from("too long")), false).await;
        let head = "HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-length: 8";
        assert_eq!(text, format!("{head}\r\n\r\ntoo long"));
        // The answer to HEAD: the length is that of the body which is not sent.
        assert_eq!(encoded(response(Body::from("too long")), true).await, format!("{head}\r\n\r\n"));
    }

    #[tokio::test]
    async fn the_connections_own_headers_replace_those_of_the_answer() {
        let mut response = response(Body::from("four"));
        for (name, value) in [
            (CONNECTION, "keep-alive"),
            (CONTENT_LENGTH, "4000"),
            (DATE, "yesterday"),
            (TRANSFER_ENCODING, "chunked"),
            (axum::http::header::CONTENT_TYPE, "application/json"),
        ] {
            response.headers_mut().append(name.clone(), HeaderValue::from_static(value));
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        let text = encoded(response, false).await;
        let kept = "content-type: application/json\r\n".repeat(2);
        assert_eq!(
            text,
            format!("HTTP/1.1 414 URI Too Long\r\n{kept}connection: close\r\ncontent-length: 4\r\n\r\nfour")
        );
    }

    #[tokio::test]
    async fn an_answer_that_is_too_long_or_fails_keeps_its_status() {
        let most = encoded(response(Body::from(vec![b'a'; MAX_ANSWER_BYTES])), false).await;
        assert!(most.ends_with('a') && most.contains("content-length: 65536\r\n"));
        let failing = futures_util::stream::iter([Ok("begun"), Err(io::Error::other("broken"))]);
        for body in [Body::from(vec![b'a'; MAX_ANSWER_BYTES + 1]), Body::from_stream(failing)] {
            let text = encoded(response(body), false).await;
            assert_eq!(text, "HTTP/1.1 414 URI Too Long\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        }
    }
}
