//! The steps before and after every handler.
//!
//! One function rather than a stack of layers: each would cost every request a clone and an allocation. In this order:
//!
//! ```text
//! preflight (204) -> table of endpoints -> request id -> key (401) -> name of the sandbox -> scope (403) -> rate limits, quotas (429) -> handler (panic: 500)
//!            <- log line, metrics <- X-Request-Id, rate headers, content type, error body <-
//! ```
//!
//! `routes` has the table of endpoints; `commands::serve` passes [`Unrouted`] to the listeners. Every
//! response that leaves here is complete, whatever fails in a handler.

mod admit;
mod envelope;
mod named_sandbox;
mod start_page;
mod unrouted;

use std::sync::Arc;

use admission::endpoint::{Authorized, Found, Matched};
use admission::error::ApiError;
use admission::in_flight;
use admission::record::Record;
use admission::request_id::RequestId;
use api::ErrorCode;
use axum::extract::Request;
use axum::http::{Method, header};
use axum::response::{IntoResponse, Response};
use listen::{Answer, Application};
use service::Service;
use service::origins;

use crate::endpoint::Table;
use admit::admit;

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
        let head = (request.method(), request.uri(), request.headers());
        let admitted = admit(&service, rule, sandbox.as_deref(), head).await;
        if admitted.is_unauthorized() {
            service.gate.metrics.refused("unauthorized");
        }
        // Dropped without a response, it records that the client disconnected.
        let (route, named) = (rule.map(|rule| rule.route), admitted.sandbox.id().cloned());
        let mut record = Record::begin(&service.gate, &id, route, named, &request);
        record.ended_key =
            admitted.unknown_key(request.headers()).and_then(|key| service.gate.keyring.ended(&key));
        // Borrows from the request, which moves to the handler.
        drop(sandbox);
        admitted.sandbox.write_id(&mut request);
        record.caller.clone_from(&admitted.caller);
        let mut response = match admitted.refusal {
            Some(error) => error.into_response(),
            None => {
                let account = record.caller.as_ref().map(|caller| &caller.account);
                let kind = in_flight::Kind::of(request.headers());
                let (gate, request_id) = (Arc::clone(&service.gate), id.clone());
                let authorized = Authorized { service, caller: admitted.caller, request_id, request };
                gate.run(account, kind, respond(matched, authorized), IntoResponse::into_response).await
            }
        };
        let summary = envelope::complete(&mut response, &id, admitted.rate_headers);
        if head_only {
            envelope::behead(&mut response);
        }
        if let Some(origin) = origin {
            origins::allow(&mut response, origin);
        }
        record.note_created(&response);
        record.answered(response.status(), summary);
        response
    }
}

async fn respond(matched: Matched<'_, Service>, authorized: Authorized<Service>) -> Response {
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

#[cfg(test)]
mod tests;
