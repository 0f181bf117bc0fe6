//! The record of a request: one log line, and its metrics.
//!
//! The line has no header, query, body or key. A request whose client disconnects before the response is recorded when it is
//! dropped.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use api::{ErrorCode, SandboxId};
use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use listen::PeerAddr;

use crate::Gate;
use crate::error::ApiError;
use crate::keyring::{Caller, EndedKey};
use crate::request_id::RequestId;
use crate::wall_clock::now;

/// The status in log and metrics if the client disconnected before the response.
const CLIENT_WENT_AWAY: u16 = 499;
/// The path template of unknown paths: the metrics must not grow with paths that clients invent.
const NO_ROUTE: &str = "none";
const OTHER_METHOD: &str = "OTHER";

/// An error as the log shows it: the code that the client got, the cause, and what refused the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorSummary {
    pub code: ErrorCode,
    pub cause: Option<String>,
    /// What refuses the request for now: the configuration key of a limit, what a fixed limit counts, or a condition of the service.
    pub limit: Option<String>,
    pub limit_value: Option<u64>,
}

impl ErrorSummary {
    /// An error of which only the code is known.
    pub const fn of_code(code: ErrorCode) -> Self {
        Self { code, cause: None, limit: None, limit_value: None }
    }

    pub fn of(error: &ApiError) -> Self {
        let text = |name: &str| error.details.get(name)?.as_str().map(str::to_owned);
        let limit = || text("key").or_else(|| text("limit")).or_else(|| text("condition"));
        let limit = error.retry_after_s.and_then(|_| limit());
        let value = || error.details.get("value").and_then(serde_json::Value::as_u64);
        let limit_value = limit.as_ref().and_then(|_| value());
        Self { code: error.code, cause: error.cause_text(), limit, limit_value }
    }
}

/// The sandboxes that a request has created: an extension of its response, for the log.
#[derive(Debug, Clone)]
pub struct CreatedSandboxes(pub Vec<SandboxId>);

/// A request in progress.
pub struct Record {
    gate: Arc<Gate>,
    begun: Instant,
    method: &'static str,
    route: &'static str,
    id: RequestId,
    client: Option<IpAddr>,
    sandbox: Option<SandboxId>,
    /// The forks of that sandbox.
    forks: Option<String>,
    pub caller: Option<Caller>,
    /// The account of a request with a token in place of a key.
    pub account: Option<Arc<str>>,
    /// The key of a request that is refused because the key was revoked or has expired.
    pub ended_key: Option<EndedKey>,
    status: u16,
    error: Option<ErrorSummary>,
    /// Whether a 5xx needs no attention of the operator.
    is_expected: bool,
}

impl Record {
    /// Begins with the head of the request. `route` is the template of its path, or a name for several; `None` if it has neither.
    pub fn begin(
        gate: &Arc<Gate>,
        id: &RequestId,
        route: Option<&'static str>,
        sandbox: Option<SandboxId>,
        request: &Request,
    ) -> Self {
        let client = request
            .extensions()
            .get::<PeerAddr>()
            .map(|PeerAddr(peer)| gate.trusted_proxies.client(peer.ip(), request.headers()));
        let mut record = Self::of(gate, id, route.unwrap_or(NO_ROUTE), name_of(request.method()));
        (record.sandbox, record.client) = (sandbox, client);
        record
    }

    /// For requests without a readable method and path.
    pub fn unrouted(gate: &Arc<Gate>, id: &RequestId, what: &'static str) -> Self {
        Self::of(gate, id, what, OTHER_METHOD)
    }

    fn of(gate: &Arc<Gate>, id: &RequestId, route: &'static str, method: &'static str) -> Self {
        Self {
            gate: Arc::clone(gate),
            begun: Instant::now(),
            method,
            route,
            id: id.clone(),
            client: None,
            sandbox: None,
            forks: None,
            caller: None,
            account: None,
            ended_key: None,
            status: CLIENT_WENT_AWAY,
            error: None,
            is_expected: false,
        }
    }

    /// Like [`Record::answered`], for a response whose status anybody can cause, such as 502 for a sandbox that does not exist.
    pub fn answered_as_expected(mut self, status: StatusCode, error: Option<ErrorSummary>) {
        (self.status, self.is_expected, self.error) = (status.as_u16(), true, error);
    }

    /// Notes the sandboxes that the request has created.
    pub fn note_created(&mut self, response: &Response) {
        match response.extensions().get::<CreatedSandboxes>() {
            Some(CreatedSandboxes(created)) if self.sandbox.is_none() => {
                self.sandbox = created.first().cloned();
            }
            Some(CreatedSandboxes(created)) => {
                let ids: Vec<&str> = created.iter().map(SandboxId::as_str).collect();
                self.forks = Some(ids.join(" "));
            }
            None => {}
        }
    }

    fn account(&self) -> Option<&str> {
        let account = self.caller.as_ref().map(|caller| &caller.account).or(self.account.as_ref());
        account.map(|account| &**account)
    }

    fn key_id(&self) -> Option<&str> {
        let ended = || self.ended_key.as_ref().map(|key| &*key.key_id);
        self.caller.as_ref().map(|caller| &*caller.key_id).or_else(ended)
    }

    /// The response head is complete.
    pub fn answered(mut self, status: StatusCode, error: Option<ErrorSummary>) {
        self.status = status.as_u16();
        self.error = error;
    }
}

/// One line with the same fields at each level. The macros of `tracing` need a literal level.
macro_rules! line {
    ($level:ident, $record:ident, $took:ident) => {
        tracing::$level!(
            target: "sandboxd::request",
            method = $record.method,
            route = $record.route,
            status = $record.status,
            ms = $took.as_micros() as f64 / 1000.0,
            request_id = &*$record.id.0,
            account = $record.account(),
            sandbox = $record.sandbox.as_ref().map(tracing::field::display),
            forks = $record.forks.as_deref(),
            key_id = $record.key_id(),
            reason = $record.ended_key.as_ref().map(|key| key.end.name()),
            client = $record.client.map(tracing::field::display),
            code = $record.error.as_ref().map(|error| error.code.as_str()),
            cause = $record.error.as_ref().and_then(|error| error.cause.as_deref()),
            limit = $record.error.as_ref().and_then(|error| error.limit.as_deref()),
            limit_value = $record.error.as_ref().and_then(|error| error.limit_value),
            "request"
        )
    };
}

impl Drop for Record {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        if let Some(caller) = &self.caller {
            self.gate.key_uses.note(&caller.key_id, now());
        }
        self.gate.metrics.request(self.route, self.method, self.status, took);
        if is_fault(self.status) && !self.is_expected {
            self.gate.metrics.internal_error();
            line!(error, self, took);
        } else if self.status < 400 && matches!(self.method, "GET" | "HEAD") {
            // Successful reads are frequent and of little interest.
            line!(debug, self, took);
        } else {
            line!(info, self, took);
        }
    }
}

/// Whether a status of the native API needs the operator's attention. Exhausted capacity does not, nor does the full disk of a sandbox,
/// with which each account could raise the operator's alerts.
fn is_fault(status: u16) -> bool {
    let expected = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::INSUFFICIENT_STORAGE];
    status >= 500 && !expected.iter().any(|expected| expected.as_u16() == status)
}

/// Clients can invent methods, and each would be a label in the metrics.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_cannot_alert_the_operator_by_filling_a_disk() {
        for (status, is) in [(499, false), (500, true), (502, true), (503, false), (507, false)] {
            assert_eq!(is_fault(status), is, "{status}");
        }
    }

    #[test]
    fn a_value_is_logged_with_its_limit_only() {
        let invalid = ApiError::new(ErrorCode::InvalidConfig, "no").with_detail("value", 3);
        assert_eq!(ErrorSummary::of(&invalid), ErrorSummary::of_code(ErrorCode::InvalidConfig));
    }
}
