//! One request to this API: its id, its line in the log, and what every response has.

use std::sync::Arc;

use admission::Gate;
use admission::in_flight::Kind;
use admission::record::{ErrorSummary, Record};
use admission::request_id::{self, RequestId};
use api::{ErrorCode, SandboxId};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::Response;

/// The part of the API that a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Control,
    Envd,
    /// Neither: the request does not say which sandbox it is for.
    Unknown,
}

impl Part {
    /// The name in log and metrics.
    const fn route(self) -> &'static str {
        match self {
            Self::Control => "e2b control plane",
            Self::Envd => "e2b envd",
            Self::Unknown => "e2b",
        }
    }

    /// The code for the log of an error of the API itself. The bodies of the control plane have a status only; most errors of the other
    /// part have a code of their protocol in the body.
    fn code_of(self, status: StatusCode) -> Option<ErrorCode> {
        match status {
            StatusCode::UNAUTHORIZED => Some(ErrorCode::Unauthorized),
            _ if self == Self::Envd => None,
            StatusCode::FORBIDDEN => Some(ErrorCode::Forbidden),
            StatusCode::NOT_FOUND => Some(ErrorCode::NotFound),
            StatusCode::METHOD_NOT_ALLOWED => Some(ErrorCode::MethodNotAllowed),
            StatusCode::CONFLICT => Some(ErrorCode::InvalidState),
            StatusCode::TOO_MANY_REQUESTS => Some(ErrorCode::RateLimited),
            StatusCode::INTERNAL_SERVER_ERROR => Some(ErrorCode::InternalError),
            StatusCode::SERVICE_UNAVAILABLE => Some(ErrorCode::ResourceExhausted),
            status if status.is_client_error() => Some(ErrorCode::InvalidRequest),
            _ => None,
        }
    }
}

/// A request in progress. Dropped without an end, it records that the client disconnected.
pub struct Visit {
    pub record: Record,
    pub id: RequestId,
    gate: Arc<Gate>,
    part: Part,
    is_head: bool,
}

impl Visit {
    pub fn begin(gate: &Arc<Gate>, part: Part, sandbox: Option<SandboxId>, request: &Request) -> Self {
        let id = RequestId::of(request.headers());
        // The log has the part of the API in place of a path.
        let record = Record::begin(gate, &id, Some(part.route()), sandbox, request);
        Self { record, id, gate: Arc::clone(gate), part, is_head: request.method() == Method::HEAD }
    }

    /// Completes the response. A 5xx is unexpected if the service itself failed: others, such as 502 for a sandbox that does not exist or
    /// for the start command of a template that fails, can be caused by anybody.
    pub fn end(mut self, mut response: Response) -> Response {
        response.headers_mut().insert(request_id::HEADER, self.id.header_value());
        if self.is_head {
            *response.body_mut() = Body::empty();
        }
        self.record.note_created(&response);
        let native = response.extensions().get::<Arc<ErrorSummary>>().map(|summary| (**summary).clone());
        let own = self.part.code_of(response.status()).filter(|_| native.is_none());
        self.count_refusal(own);
        let summary = native.or(own.map(ErrorSummary::of_code));
        if summary.as_ref().is_some_and(|summary| is_fault(response.status(), summary.code)) {
            self.record.answered(response.status(), summary);
        } else {
            self.record.answered_as_expected(response.status(), summary);
        }
        response
    }

    /// Counts a request without a valid key or token. What the gate refuses is counted there.
    fn count_refusal(&self, own: Option<ErrorCode>) {
        match own {
            Some(ErrorCode::Unauthorized) => self.gate.metrics.refused("unauthorized"),
            Some(ErrorCode::Forbidden) => self.gate.metrics.refused("forbidden"),
            _ => {}
        }
    }
}

/// Whether the service itself failed. Errors of creates have no code of their own for other 5xx, such as 502 for a start command of a
/// template that fails.
fn is_fault(status: StatusCode, code: ErrorCode) -> bool {
    let is_other = status.is_server_error() && status != StatusCode::INTERNAL_SERVER_ERROR;
    code == ErrorCode::InternalError && !is_other
}

/// The kind of a request: their clients mark streams by the content type.
pub fn kind_of(headers: &HeaderMap) -> Kind {
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    let is_stream = kind.is_some_and(|kind| kind.starts_with(b"application/connect+"));
    if is_stream { Kind::Stream } else { Kind::Request }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_can_cause_is_no_fault_of_the_service() {
        for (status, code, is) in [
            (500, ErrorCode::InternalError, true),
            // A stream that fails has its error in the body.
            (200, ErrorCode::InternalError, true),
            (502, ErrorCode::InternalError, false),
            (503, ErrorCode::InternalError, false),
            (502, ErrorCode::ExecutionError, false),
            (400, ErrorCode::InvalidRequest, false),
        ] {
            assert_eq!(is_fault(StatusCode::from_u16(status).unwrap(), code), is, "{status} {code:?}");
        }
    }
}
