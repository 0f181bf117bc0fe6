//! Requests and streams that each account has in flight, against its quotas.
//!
//! [`crate::Gate`] takes a [`Permit`] before the handler runs. The response holds it until its body has ended or is dropped or, for a
//! takeover of the connection (a terminal's websocket), until that ends. A permit counts in two atomics, without waiting.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use base::IgnorePoison;
use listen::Takeover;
use rules::{QuotaExceeded, QuotaTable, Quotas};

use crate::holding::Holding;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Request,
    /// Server-sent events, or a websocket.
    Stream,
}

impl Kind {
    /// By the request headers: a stream is counted before its work begins.
    pub fn of(headers: &HeaderMap) -> Self {
        let accepts = headers.get_all(header::ACCEPT).iter().map(|value| value.as_bytes());
        let is_stream = headers.contains_key(header::UPGRADE) || reader::wants_stream(accepts);
        if is_stream { Self::Stream } else { Self::Request }
    }
}

/// The counts of every account that has sent a request; the operator creates the accounts, which bounds their number.
#[derive(Debug, Default)]
pub struct InFlight {
    quotas: QuotaTable,
    accounts: RwLock<HashMap<Arc<str>, Arc<Counts>>>,
}

/// The requests and streams in flight of one account.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    streams: AtomicU64,
}

/// One request, or one stream, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    counts: Arc<Counts>,
    kind: Kind,
}

impl InFlight {
    /// Without a request yet.
    pub fn new(quotas: QuotaTable) -> Self {
        Self { quotas, accounts: RwLock::default() }
    }

    /// Counts a request of an account until the permit is dropped. Fails if its quota is used up.
    pub fn enter(&self, account: &Arc<str>, kind: Kind) -> Result<Permit, QuotaExceeded> {
        let counts = self.counts(account);
        let quotas = self.quotas.of(account);
        add(&counts.requests, quotas, Quotas::connect)?;
        if kind == Kind::Stream
            && let Err(refused) = add(&counts.streams, quotas, Quotas::stream)
        {
            counts.requests.fetch_sub(1, Ordering::Relaxed);
            return Err(refused);
        }
        Ok(Permit { counts, kind })
    }

    /// Requests and streams of an account.
    pub fn of(&self, account: &str) -> (u64, u64) {
        let accounts = self.accounts.read().ignore_poison();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        accounts.get(account).map_or((0, 0), |counts| (read(&counts.requests), read(&counts.streams)))
    }

    fn counts(&self, account: &Arc<str>) -> Arc<Counts> {
        if let Some(counts) = self.accounts.read().ignore_poison().get(account) {
            return Arc::clone(counts);
        }
        let mut accounts = self.accounts.write().ignore_poison();
        Arc::clone(accounts.entry(Arc::clone(account)).or_default())
    }
}

/// Adds one if the quota allows it, atomically: concurrent requests never exceed it.
fn add(
    counter: &AtomicU64,
    quotas: &Quotas,
    check: impl Fn(&Quotas, u64) -> Result<(), QuotaExceeded>,
) -> Result<(), QuotaExceeded> {
    let mut refused = None;
    let added =
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| match check(quotas, count) {
            Ok(()) => Some(count + 1),
            Err(error) => {
                refused = Some(error);
                None
            }
        });
    match (added, refused) {
        (Err(_), Some(refused)) => Err(refused),
        _ => Ok(()),
    }
}

impl Permit {
    /// Holds the permit until the response ends.
    pub fn attach(self, response: Response) -> Response {
        if let Some(takeover) = response.extensions().get::<Takeover>() {
            takeover.hold(self);
            return response;
        }
        response.map(|body| {
            // An empty body is never polled to its end.
            if body.is_end_stream() { body } else { Body::new(Holding::new(body, self)) }
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.counts.requests.fetch_sub(1, Ordering::Relaxed);
        if self.kind == Kind::Stream {
            self.counts.streams.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;
    use rules::Quota;

    use super::*;

    fn in_flight(connections: u64, streams: u64) -> InFlight {
        let default = Quotas { connections: Some(connections), streams: Some(streams), ..Quotas::default() };
        InFlight::new(QuotaTable { default, ..QuotaTable::default() })
    }

    #[test]
    fn each_account_has_its_own_counts() {
        let flights = in_flight(3, 1);
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let stream = flights.enter(&one, Kind::Stream).unwrap();
        assert_eq!(flights.enter(&one, Kind::Stream).unwrap_err().quota, Quota::Streams);
        let _requests =
            [flights.enter(&one, Kind::Request).unwrap(), flights.enter(&one, Kind::Request).unwrap()];
        assert_eq!(flights.enter(&one, Kind::Request).unwrap_err().quota, Quota::Connections);
        assert_eq!(flights.of("one"), (3, 1));
        let _theirs = flights.enter(&other, Kind::Stream).unwrap();
        drop(stream);
        assert_eq!((flights.of("one"), flights.of("other"), flights.of("nobody")), ((2, 0), (1, 1), (0, 0)));
    }

    #[test]
    fn concurrent_requests_never_exceed_the_quota() {
        let flights = in_flight(50, 0);
        let account: Arc<str> = "one".into();
        let held: Vec<Permit> = std::thread::scope(|scope| {
            let enter =
                || (0..100).filter_map(|_| flights.enter(&account, Kind::Request).ok()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(enter)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((held.len(), flights.of("one")), (50, (50, 0)));
        drop(held);
        assert_eq!(flights.of("one"), (0, 0));
    }

    #[tokio::test]
    async fn a_permit_lasts_as_long_as_the_body() {
        let flights = in_flight(5, 5);
        let account: Arc<str> = "one".into();
        let permit = |kind| flights.enter(&account, kind).unwrap();
        let mut read = permit(Kind::Stream).attach("some text".into_response());
        assert_eq!(flights.of("one"), (1, 1));
        assert!(read.body().size_hint().exact() == Some(9) && !read.body().is_end_stream());
        assert_eq!(read.body_mut().collect().await.unwrap().to_bytes(), "some text");
        drop(read);
        assert_eq!(flights.of("one"), (0, 0));
        let unread = permit(Kind::Request).attach("some text".into_response());
        assert_eq!(flights.of("one"), (1, 0));
        drop(unread);
        let _empty = permit(Kind::Request).attach(().into_response());
        assert_eq!(flights.of("one"), (0, 0));
    }

    #[tokio::test]
    async fn a_permit_lasts_as_long_as_a_takeover() {
        let flights = in_flight(5, 5);
        let mut response = ().into_response();
        let takeover = Takeover::new(|_| async {});
        response.extensions_mut().insert(takeover.clone());
        drop(flights.enter(&"one".into(), Kind::Stream).unwrap().attach(response));
        assert_eq!(flights.of("one"), (1, 1));
        drop(takeover);
        assert_eq!(flights.of("one"), (0, 0));
    }

    #[test]
    fn streams_are_known_by_their_headers() {
        let of = |name: &'static str, value: &'static str| {
            Kind::of(
                &[(name, value)]
                    .into_iter()
                    .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                    .collect(),
            )
        };
        assert_eq!(of("accept", "text/event-stream"), Kind::Stream);
        assert_eq!(of("upgrade", "websocket"), Kind::Stream);
        assert_eq!(of("accept", "application/json"), Kind::Request);
    }
}
