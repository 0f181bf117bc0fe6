//! Responses to requests that do not reach the router: malformed ones, and plain HTTP on an HTTPS port. The listeners request them
//! here, so that they have the same form as all others.

use std::sync::Arc;

use admission::error::ApiError;
use admission::record::Record;
use admission::request_id::{self, RequestId};
use api::ErrorCode;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use listen::{Answers, Fault};
use service::Service;

use super::envelope;

/// Builds the responses for a service.
pub struct Unrouted(pub Arc<Service>);

impl Unrouted {
    fn complete(&self, mut response: Response, what: &'static str, id: Option<&HeaderValue>) -> Response {
        let id = id.map_or_else(RequestId::generate, |value| {
            RequestId::of(&HeaderMap::from_iter([(request_id::HEADER, value.clone())]))
        });
        let record = Record::unrouted(&self.0.gate, &id, what);
        let summary = envelope::complete(&mut response, &id, self.0.gate.limiter.uncounted());
        record.answered(response.status(), summary);
        response
    }
}

impl Answers for Unrouted {
    fn fault(&self, fault: Fault, request_id: Option<&HeaderValue>) -> Response {
        let error = ApiError::new(ErrorCode::InvalidRequest, fault.to_string()).with_status(fault.status());
        self.complete(error.into_response(), "malformed", request_id)
    }

    fn moved(&self, location: &str, request_id: Option<&HeaderValue>) -> Response {
        let body = serde_json::json!({ "location": location }).to_string();
        let mut response = (StatusCode::MOVED_PERMANENTLY, body).into_response();
        response.headers_mut().remove(axum::http::header::CONTENT_TYPE);
        self.complete(response, "redirect", request_id)
    }
}
