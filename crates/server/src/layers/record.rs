//! What stays of a request when it is over: one line in the log and its place in the metrics.
//!
//! The line holds no header, no query, no body and no key. A request whose client went away before its answer is recorded
//! when it is dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use api::SandboxId;
use axum::extract::Request;
use axum::http::{Method, StatusCode, Uri};
use listen::PeerAddr;

use super::admission::sandbox_in;
use super::envelope::Told;
use crate::endpoint::Rule;
use crate::keyring::Caller;
use crate::request_id::RequestId;
use crate::service::Service;

/// Stands for an answer in log and metrics when nobody was there any more to get one.
const CLIENT_WENT_AWAY: u16 = 499;
/// Stands for the template where no route fits: paths that clients make up are not for the metrics.
const NO_ROUTE: &str = "none";
const OTHER_METHOD: &str = "OTHER";

/// A request under way.
pub struct Record {
    service: Arc<Service>,
    begun: Instant,
    method: &'static str,
    route: &'static str,
    id: RequestId,
    client: Option<IpAddr>,
    /// Holds the sandbox's id, which is read only if there is a line to write.
    uri: Uri,
    pub caller: Option<Caller>,
    status: u16,
    told: Option<Told>,
}

impl Record {
    pub fn begin(service: &Arc<Service>, id: &RequestId, rule: Option<Rule>, request: &Request) -> Self {
        let client = request
            .extensions()
            .get::<PeerAddr>()
            .map(|PeerAddr(peer)| service.trusted_proxies.client(peer.ip(), request.headers()));
        let route = rule.map_or(NO_ROUTE, |rule| rule.route);
        let mut record = Self::of(service, id, route, name_of(request.method()));
        (record.uri, record.client) = (request.uri().clone(), client);
        record
    }

    /// Of what came without a method and a path that could be read.
    pub fn unrouted(service: &Arc<Service>, id: &RequestId, what: &'static str) -> Self {
        Self::of(service, id, what, OTHER_METHOD)
    }

    fn of(service: &Arc<Service>, id: &RequestId, route: &'static str, method: &'static str) -> Self {
        Self {
            service: Arc::clone(service),
            begun: Instant::now(),
            method,
            route,
            id: id.clone(),
            client: None,
            uri: Uri::default(),
            caller: None,
            status: CLIENT_WENT_AWAY,
            told: None,
        }
    }

    fn sandbox(&self) -> Option<SandboxId> {
        sandbox_in(self.uri.path())?.parse().ok()
    }

    /// The head of the answer is complete.
    pub fn answered(mut self, status: StatusCode, told: Option<Told>) {
        self.status = status.as_u16();
        self.told = told;
    }
}

/// One line with the same fields at each level; the macros want the level written out.
macro_rules! line {
    ($level:ident, $record:ident, $took:ident) => {
        tracing::$level!(
            target: "sandboxd::request",
            method = $record.method,
            route = $record.route,
            status = $record.status,
            ms = $took.as_micros() as f64 / 1000.0,
            request_id = &*$record.id.0,
            account = $record.caller.as_ref().map(|caller| &*caller.account),
            sandbox = $record.sandbox().map(tracing::field::display),
            key_id = $record.caller.as_ref().map(|caller| &*caller.key_id),
            client = $record.client.map(tracing::field::display),
            code = $record.told.as_ref().map(|told| told.code.as_str()),
            cause = $record.told.as_ref().and_then(|told| told.cause.as_deref()),
            "request"
        )
    };
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        self.service.metrics.request(self.route, self.method, self.status, took);
        // No room is an answer like others; the rest is for somebody to look at.
        if self.status >= 500 && self.status != StatusCode::SERVICE_UNAVAILABLE.as_u16() {
            line!(error, self, took);
        } else if self.status < 400 && matches!(self.method, "GET" | "HEAD") {
            // Nothing changed and nothing went wrong: many, and of interest to few.
            line!(debug, self, took);
        } else {
            line!(info, self, took);
        }
    }
}

/// Anybody can make up methods, and each would be kept in the metrics.
fn name_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => OTHER_METHOD,
    }
}
