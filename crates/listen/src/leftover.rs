//! What is left of a request body when its response is made. It is read and discarded, so that the client's next request on the
//! connection is answered, or the response says that the connection ends.
//!
//! hyper closes an HTTP/1 connection whose request body was dropped before its end, even if the response has promised to keep it open.
//! Many clients send the body in a packet of its own, so whether it has arrived by then is a matter of luck. Therefore the application
//! gets a [`RequestBody`], which lends the body, and [`Leftover`] decides when the head of the response is made:
//!
//! ```text
//! nothing is left                          ──> the connection stays open
//! at most 64 KiB are announced             ──> it stays open, and they are drained while the response is sent
//! chunks: the response waits a moment
//!   ├─ at most 64 KiB arrived, to the end  ──> it stays open
//!   └─ otherwise                           ──> Connection: close
//! more; broken or too slow; `100 Continue` was not sent; the client's last request
//!                                          ──> Connection: close
//! ```
//!
//! After `Connection: close` the connection lingers (`Wire::linger`), because a client that still sends would otherwise lose the response.
//! If the application reads on after the response's head, the decision holds for what it leaves later.
//!
//! An HTTP/2 stream ends without its connection. Its body is drained from the time at which the application drops it, because some clients
//! take a reset for the failure of their request. Then h2 resets the stream with `NO_ERROR`, once the response is sent (RFC 9113 section
//! 8.1).
//!
//! Nothing here fails: a client that does not send what it has announced loses its connection when the time is up.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::header::{CONNECTION, EXPECT};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Version};
use axum::response::Response;
use base::IgnorePoison;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::body::{BodyError, Expectation, Pace, TimedBody, Unread};
use crate::settings::Limits;
use crate::tasks::Tasks;
use crate::wire::LINGER_BYTES;

/// The most bytes that are drained for the next request on an HTTP/1 connection.
const DRAIN_BYTES: u64 = 64 * 1024;

/// Drains the request bodies of one connection.
pub struct Drainer {
    pub tasks: Tasks,
    pub limits: Arc<Limits>,
    pub stop: CancellationToken,
}

/// Bounds of one drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    bytes: u64,
    time: Duration,
}

impl Drainer {
    /// Lends a request's body to the application. Over HTTP/1 the caller settles the rest when the response is made.
    pub fn lend(
        self: &Arc<Self>,
        body: Incoming,
        parts: &Parts,
        pace: Pace,
    ) -> (RequestBody, Option<Leftover>) {
        let body = TimedBody::new(body, expectation(parts), &self.limits, pace);
        let persistence = (parts.version != Version::HTTP_2).then(|| Persistence::of(parts));
        let state = match persistence {
            Some(_) => LeftoverState::Undecided { body, reader: BodyReader::Application },
            None => LeftoverState::Decided { body, fate: Fate::Drain(self.http2_bounds()) },
        };
        let lent = Arc::new(Lent { drainer: Arc::clone(self), state: Mutex::new(state) });
        let leftover = persistence.map(|persistence| Leftover { lent: Arc::clone(&lent), persistence });
        (RequestBody(lent), leftover)
    }

    /// Reads and discards what is left of a body. The task ends when the connection ends or the service stops, if not before.
    fn drain(&self, body: TimedBody, bounds: Bounds) {
        let is_over = matches!(body.unread(), Unread::Nothing | Unread::NotRequested);
        // Without a runtime there are no connections any more.
        if is_over || Handle::try_current().is_err() {
            return;
        }
        let (mut body, stop) = (body.into_incoming(), self.stop.clone());
        self.tasks.spawn(async move {
            stop.run_until_cancelled(timeout(bounds.time, discard(&mut body, bounds.bytes))).await;
        });
    }

    fn http1_bounds(&self) -> Bounds {
        // A handler would wait as long for the same bytes.
        Bounds { bytes: DRAIN_BYTES, time: self.limits.body_timeout }
    }

    fn http2_bounds(&self) -> Bounds {
        Bounds { bytes: LINGER_BYTES as u64, time: self.limits.linger_timeout }
    }
}

/// How much of a body was discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discarded {
    All,
    Part,
}

/// Reads and discards a body of at most `bytes_max`.
async fn discard(body: &mut Incoming, bytes_max: u64) -> Discarded {
    let mut left = bytes_max;
    // When the response was sent before, hyper does not end a body after its last byte until the next request.
    while !body.is_end_stream() {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await;
        let bytes = match frame {
            None => return Discarded::All,
            Some(Err(_)) => return Discarded::Part,
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len) as u64,
        };
        match left.checked_sub(bytes) {
            Some(rest) => left = rest,
            None => return Discarded::Part,
        }
    }
    Discarded::All
}

/// Whether the client may send another request on the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Persistence {
    Persistent,
    LastRequest,
}

impl Persistence {
    /// HTTP/1.0 clients have to ask for it, and seldom do: a connection that ends is right for all of them.
    fn of(parts: &Parts) -> Self {
        let options = parts.headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
        let mut options = options.flat_map(|value| value.split(','));
        if parts.version != Version::HTTP_11 || options.any(|it| it.trim().eq_ignore_ascii_case("close")) {
            Self::LastRequest
        } else {
            Self::Persistent
        }
    }
}

/// hyper ignores the expectation of an HTTP/1.0 client, and compares it in the same way.
fn expectation(parts: &Parts) -> Expectation {
    let mut values = parts.headers.get_all(EXPECT).iter();
    let is_continue = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    if parts.version > Version::HTTP_10 && values.any(is_continue) {
        Expectation::Continue
    } else {
        Expectation::Nothing
    }
}

/// What happens to the unread part of an HTTP/1 request body when the response is made.
#[derive(Debug, PartialEq, Eq)]
enum LeftoverPlan {
    Nothing,
    /// It is drained while the response is sent.
    Drain,
    /// The response waits for its end.
    Wait,
    Close,
}

fn plan(unread: Unread, persistence: Persistence) -> LeftoverPlan {
    match (unread, persistence) {
        (Unread::Nothing, _) => LeftoverPlan::Nothing,
        (Unread::NotRequested | Unread::Failed, _) | (_, Persistence::LastRequest) => LeftoverPlan::Close,
        (Unread::Bytes(bytes), _) if bytes <= DRAIN_BYTES => LeftoverPlan::Drain,
        (Unread::Bytes(_), _) => LeftoverPlan::Close,
        (Unread::Chunks, _) => LeftoverPlan::Wait,
    }
}

/// A request body that is lent to the application.
struct Lent {
    drainer: Arc<Drainer>,
    state: Mutex<LeftoverState>,
}

impl Lent {
    fn state(&self) -> MutexGuard<'_, LeftoverState> {
        // The state is replaced as a whole, so a panic cannot leave it inconsistent.
        self.state.lock().ignore_poison()
    }
}

enum LeftoverState {
    /// The response is not made yet.
    Undecided { body: TimedBody, reader: BodyReader },
    /// The application may read on.
    Decided { body: TimedBody, fate: Fate },
    /// Nothing is left to do here.
    Settled,
}

enum BodyReader {
    Application,
    /// The application has dropped the body.
    Nobody,
}

/// What happens to the rest when the application drops the body.
#[derive(Clone, Copy)]
enum Fate {
    Drain(Bounds),
    Abandon,
}

impl LeftoverState {
    fn body(&self) -> Option<&TimedBody> {
        match self {
            Self::Undecided { body, .. } | Self::Decided { body, .. } => Some(body),
            Self::Settled => None,
        }
    }

    fn body_mut(&mut self) -> Option<&mut TimedBody> {
        match self {
            Self::Undecided { body, .. } | Self::Decided { body, .. } => Some(body),
            Self::Settled => None,
        }
    }
}

/// A request's body, for the application.
pub struct RequestBody(Arc<Lent>);

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.0.state().body_mut() {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.state().body().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.state().body().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let mut state = self.0.state();
        *state = match std::mem::replace(&mut *state, LeftoverState::Settled) {
            LeftoverState::Undecided { body, .. } => {
                LeftoverState::Undecided { body, reader: BodyReader::Nobody }
            }
            LeftoverState::Decided { body, fate: Fate::Drain(bounds) } => {
                self.0.drainer.drain(body, bounds);
                LeftoverState::Settled
            }
            LeftoverState::Decided { fate: Fate::Abandon, .. } | LeftoverState::Settled => {
                LeftoverState::Settled
            }
        };
    }
}

/// What the application leaves of an HTTP/1 request body.
pub struct Leftover {
    lent: Arc<Lent>,
    persistence: Persistence,
}

enum Decision {
    KeepOpen,
    Close,
    /// Keep the connection open if this ends soon.
    Wait(Incoming),
}

impl Leftover {
    /// Called when the response is made, before its head is sent. Adds `Connection: close` if the connection ends with the response.
    pub async fn settle(self, response: &mut Response) {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // The connection goes on with another protocol.
            return;
        }
        let closes = match self.decide() {
            Decision::KeepOpen => false,
            Decision::Close => true,
            Decision::Wait(body) => self.wait_for_end(body).await == Discarded::Part,
        };
        if closes {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    async fn wait_for_end(&self, mut body: Incoming) -> Discarded {
        let time = self.lent.drainer.limits.chunks_wait;
        timeout(time, discard(&mut body, DRAIN_BYTES)).await.unwrap_or(Discarded::Part)
    }

    fn decide(&self) -> Decision {
        let mut state = self.lent.state();
        let LeftoverState::Undecided { body, reader } =
            std::mem::replace(&mut *state, LeftoverState::Settled)
        else {
            return Decision::KeepOpen;
        };
        let drainer = &self.lent.drainer;
        match (plan(body.unread(), self.persistence), reader) {
            (LeftoverPlan::Nothing, BodyReader::Nobody) => Decision::KeepOpen,
            (LeftoverPlan::Drain, BodyReader::Nobody) => {
                drainer.drain(body, drainer.http1_bounds());
                Decision::KeepOpen
            }
            (LeftoverPlan::Wait, BodyReader::Nobody) => Decision::Wait(body.into_incoming()),
            (LeftoverPlan::Close, BodyReader::Nobody) => Decision::Close,
            (LeftoverPlan::Nothing | LeftoverPlan::Drain, BodyReader::Application) => {
                *state = LeftoverState::Decided { body, fate: Fate::Drain(drainer.http1_bounds()) };
                Decision::KeepOpen
            }
            (LeftoverPlan::Wait | LeftoverPlan::Close, BodyReader::Application) => {
                *state = LeftoverState::Decided { body, fate: Fate::Abandon };
                Decision::Close
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(version: Version, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_connection_stays_open_for_a_short_rest() {
        let open = |unread| plan(unread, Persistence::Persistent);
        assert_eq!(open(Unread::Nothing), LeftoverPlan::Nothing);
        assert_eq!(open(Unread::Bytes(1)), LeftoverPlan::Drain);
        assert_eq!(open(Unread::Bytes(DRAIN_BYTES)), LeftoverPlan::Drain);
        assert_eq!(open(Unread::Bytes(DRAIN_BYTES + 1)), LeftoverPlan::Close);
        assert_eq!(open(Unread::Chunks), LeftoverPlan::Wait);
        assert_eq!(open(Unread::NotRequested), LeftoverPlan::Close);
        assert_eq!(open(Unread::Failed), LeftoverPlan::Close);
        for unread in [Unread::Bytes(1), Unread::Chunks, Unread::NotRequested, Unread::Failed] {
            assert_eq!(plan(unread, Persistence::LastRequest), LeftoverPlan::Close);
        }
        assert_eq!(plan(Unread::Nothing, Persistence::LastRequest), LeftoverPlan::Nothing);
    }

    #[test]
    fn a_client_says_whether_its_request_is_the_last_one() {
        let last = |version, value| Persistence::of(&parts(version, &[("connection", value)]));
        assert_eq!(last(Version::HTTP_11, "keep-alive"), Persistence::Persistent);
        assert_eq!(last(Version::HTTP_11, "x-closed, upgrade"), Persistence::Persistent);
        assert_eq!(last(Version::HTTP_11, "keep-alive, Close"), Persistence::LastRequest);
        assert_eq!(last(Version::HTTP_10, "keep-alive"), Persistence::LastRequest);
        let twice = parts(Version::HTTP_11, &[("connection", "te"), ("connection", "close")]);
        assert_eq!(Persistence::of(&twice), Persistence::LastRequest);
        assert_eq!(Persistence::of(&parts(Version::HTTP_11, &[])), Persistence::Persistent);
    }

    #[test]
    fn only_http_1_1_and_later_clients_wait_for_100_continue() {
        let expects = |version, value| expectation(&parts(version, &[("expect", value)]));
        assert_eq!(expects(Version::HTTP_11, "100-Continue"), Expectation::Continue);
        assert_eq!(expects(Version::HTTP_2, "100-continue"), Expectation::Continue);
        assert_eq!(expects(Version::HTTP_10, "100-continue"), Expectation::Nothing);
        assert_eq!(expects(Version::HTTP_11, "other"), Expectation::Nothing);
        assert_eq!(expectation(&parts(Version::HTTP_11, &[])), Expectation::Nothing);
    }
}
