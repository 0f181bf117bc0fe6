//! The steps before and after every handler.
//!
//! One function rather than a stack of layers: each would cost every request a clone and an allocation. In this order:
//!
//! ```text
//! preflight (204) -> table of endpoints -> request id -> key (401) -> name of the sandbox -> scope (403) -> rate limits, quotas (429) -> handler (panic: 500)
//!            <- log line, metrics <- X-Request-Id, rate headers, content type, error body <-
//! ```
//!
//! `routes` has the table of endpoints; `commands::serve` runs [`maintain`] in a task and passes [`Unrouted`] to the listeners. Every
//! response that leaves here is complete, whatever fails in a handler.

mod admission;
mod envelope;
mod maintenance;
mod named_sandbox;
mod record;
mod start_page;
mod unrouted;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use api::ErrorCode;
use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use listen::{Answer, Application};

use crate::endpoint::{Authorized, Found, Matched, Table};
use crate::error::{ApiError, of_quota};
use crate::in_flight;
use crate::origins;
use crate::request_id::RequestId;
use crate::service::Service;
use admission::admit;

pub use maintenance::maintain;
pub use record::Record;
pub use start_page::START_PAGE;
pub use unrouted::Unrouted;

/// The declared endpoints behind authorization and limits. Clones share everything.
#[derive(Clone)]
pub struct Guarded {
    pub table: Arc<Table>,
    pub service: Arc<Service>,
}

impl Application for Guarded {
    fn answer(&self, request: Request) -> Answer {
        Box::pin(self.clone().pass(request))
    }
}

impl Guarded {
    pub async fn pass(self, mut request: Request) -> Response {
        let Self { table, service } = self;
        let origin = service.allowed_origins.of(request.headers());
        if let Some(origin) = &origin
            && let Some(mut response) = origins::preflight(request.method(), request.headers())
        {
            origins::allow(&mut response, origin.clone());
            return response;
        }
        let Found { matched, sandbox } = table.find(request.method(), start_page::routed_path(&request));
        let rule = matched.rule();
        let head_only = request.method() == Method::HEAD;
        let id = RequestId::of(request.headers());
        let mut admitted = admit(&service, rule, sandbox.as_deref(), &request);
        // The key may be newer than the keyring's last refresh.
        if let Some(key) = admitted.unknown_key(request.headers())
            && service.keyring.refresh_and_find(&key, service.store.as_ref()).await
        {
            admitted = admit(&service, rule, sandbox.as_deref(), &request);
        }
        if admitted.is_unauthorized() {
            service.metrics.refused("unauthorized");
        }
        // Dropped without a response, it records that the client disconnected.
        let mut record = Record::begin(&service, &id, rule, admitted.sandbox.id().cloned(), &request);
        record.ended_key =
            admitted.unknown_key(request.headers()).and_then(|key| service.keyring.ended(&key));
        // Borrows from the request, which moves to the handler.
        drop(sandbox);
        admitted.sandbox.write_id(&mut request);
        record.caller.clone_from(&admitted.caller);
        let (mut response, permit) = match admitted.refusal {
            Some(error) => (error.into_response(), None),
            None => {
                let (service, request_id) = (Arc::clone(&service), id.clone());
                let caller = admitted.caller;
                counted(matched, Authorized { service, caller, request_id, request }).await
            }
        };
        if let Some(caller) = &record.caller {
            let counted = service.output_memory.count(&caller.account, response);
            response = counted.unwrap_or_else(IntoResponse::into_response);
        }
        let summary = envelope::complete(&mut response, &id, admitted.rate_headers);
        if head_only {
            envelope::behead(&mut response);
        }
        if let Some(origin) = origin {
            origins::allow(&mut response, origin);
        }
        record.answered(response.status(), summary);
        match permit {
            Some(permit) => permit.attach(response),
            None => response,
        }
    }
}

/// The response, and the account's permit, which the body holds until it is sent.
async fn counted(matched: Matched<'_>, authorized: Authorized) -> (Response, Option<in_flight::Permit>) {
    let service = &authorized.service;
    let kind = in_flight::Kind::of(authorized.request.headers());
    let entered = authorized.caller.as_ref().map(|caller| service.in_flight.enter(&caller.account, kind));
    let permit = match entered.transpose() {
        Ok(permit) => permit,
        Err(refused) => {
            service.metrics.refused("quota_exceeded");
            return (of_quota(&refused).into_response(), None);
        }
    };
    match AssertUnwindSafe(respond(matched, authorized)).catch_unwind().await {
        Ok(response) => (response, permit),
        Err(panic) => (panicked(&*panic).into_response(), permit),
    }
}

async fn respond(matched: Matched<'_>, authorized: Authorized) -> Response {
    match matched {
        Matched::Endpoint(endpoint) => {
            let response = endpoint.call(authorized).await;
            #[cfg(test)]
            tests::assert_documented(endpoint, &response);
            response
        }
        Matched::OtherMethod(resource) => {
            let mut response = wrong_method(&authorized.request).into_response();
            response.headers_mut().insert(header::ALLOW, resource.allow.clone());
            response
        }
        Matched::Nothing => nothing_here(&authorized.request).into_response(),
    }
}

fn nothing_here(request: &Request) -> ApiError {
    let message = format!("the API has no path {}; see /docs", rules::quoted(request.uri().path()));
    ApiError::new(ErrorCode::NotFound, message)
}

fn wrong_method(request: &Request) -> ApiError {
    let (path, method) = (rules::quoted(request.uri().path()), rules::quoted(request.method().as_str()));
    let message =
        format!("{path} does not support the method {method}; the header Allow lists the supported ones");
    ApiError::new(ErrorCode::MethodNotAllowed, message)
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> ApiError {
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    ApiError::internal(format!("a handler panicked: {}", message.unwrap_or("without a message")))
}

#[cfg(test)]
mod tests;
