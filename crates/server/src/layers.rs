//! What every request passes on its way in and out.
//!
//! One function rather than a stack of layers: each would cost every request a clone and an allocation. In this order:
//!
//! ```text
//! request id -> key (401) -> scope (403) -> limits (429) -> the router, a panic in it caught (500)
//!            <- log line, metrics <- X-Request-Id, rate headers, content type, the body of section 7 <-
//! ```
//!
//! `routes` puts it before its router and brings the table of rules; `commands::serve` runs [`tend`] beside it and gives
//! [`Unrouted`] to the listeners. Whatever fails in a handler, what leaves here is a complete answer.

mod admission;
mod envelope;
mod record;
mod request_id;
mod tend;
mod unrouted;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use listen::{Answer, Application};
use rules::{Charge, Scope};
use tower::Service as _;

use crate::error::{ApiError, of_quota};
use crate::in_flight;
use crate::service::Service;
use admission::admit;
use record::Record;

pub use request_id::RequestId;
pub use tend::tend;
pub use unrouted::Unrouted;

/// What is known of a request by its method and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The path's template, for the log and the metrics.
    pub route: &'static str,
    pub access: Access,
}

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No key; it counts against nothing.
    Open,
    Key {
        scope: Scope,
        charge: Charge,
    },
}

/// The rule for a method and a path; none where there is no such route, or no such method on it.
pub type FindRule = fn(&Method, &str) -> Option<Rule>;

/// A router with everything in front of it. Clones are the same.
#[derive(Clone)]
pub struct Guarded {
    pub router: Router,
    pub service: Arc<Service>,
    pub find: FindRule,
}

impl Application for Guarded {
    fn answer(&self, request: Request) -> Answer {
        Box::pin(self.clone().pass(request))
    }
}

impl Guarded {
    pub async fn pass(self, mut request: Request) -> Response {
        let Self { mut router, service, find } = self;
        let rule = find(request.method(), request.uri().path());
        let head_only = request.method() == Method::HEAD;
        let id = RequestId::of(request.headers());
        let mut admitted = admit(&service, rule, &request);
        // A key may have been made a moment ago.
        if let Some(key) = admitted.strange_key(request.headers())
            && service.keyring.look_again(&key, service.store.as_ref()).await
        {
            admitted = admit(&service, rule, &request);
        }
        if admitted.is_unauthorized() {
            service.metrics.refused("unauthorized");
        }
        // Dropped without an answer it says that the client went away.
        let mut record = Record::begin(&service, &id, rule, &request);
        let mut permit = None;
        let mut response = match admitted.refusal {
            Some(error) => {
                record.caller = admitted.caller;
                error.into_response()
            }
            None => {
                request.extensions_mut().insert(id.clone());
                let mut entered = Ok(());
                if let Some(caller) = admitted.caller {
                    record.caller = Some(caller.clone());
                    let kind = in_flight::Kind::of(request.headers());
                    entered = service.in_flight.enter(&caller.account, kind).map(|held| permit = Some(held));
                    request.extensions_mut().insert(caller);
                }
                match entered {
                    Ok(()) => {
                        let answering = async move { router.call(request).await };
                        match AssertUnwindSafe(answering).catch_unwind().await {
                            Ok(Ok(response)) => response,
                            Err(panic) => panicked(&*panic).into_response(),
                        }
                    }
                    Err(refused) => {
                        service.metrics.refused("quota_exceeded");
                        of_quota(&refused).into_response()
                    }
                }
            }
        };
        if let Some(caller) = &record.caller {
            response = service.output_memory.count(&caller.account, response);
        }
        let told = envelope::complete(&mut response, &id, admitted.shown);
        if head_only {
            envelope::behead(&mut response);
        }
        record.answered(response.status(), told);
        match permit {
            Some(permit) => permit.attach(response),
            None => response,
        }
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ApiError {
    let said = panic.downcast_ref::<&str>().copied();
    let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ApiError::internal(format!("a handler panicked: {}", said.unwrap_or("without a text")))
}

#[cfg(test)]
mod tests;
