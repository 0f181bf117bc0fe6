//! Responses that do not come from a router: to malformed requests and to plain HTTP. The program creates them in the
//! form of its other responses; this crate only frames them.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

pub(crate) const REQUEST_ID: &str = "x-request-id";

/// Why a request does not reach the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the request is malformed: {0}")]
    Malformed(&'static str),
    #[error("the request line is longer than {limit} bytes; shorten the path and the query")]
    TargetTooLong { limit: usize },
    #[error(
        "the request line and headers are longer than {limit} bytes in total; send fewer or shorter headers"
    )]
    HeadTooLong { limit: usize },
    #[error("the request has more than {limit} headers; send fewer")]
    TooManyHeaders { limit: usize },
    #[error("the request's headers were not complete within {limit_ms} ms; send them faster")]
    HeadTooSlow { limit_ms: u64 },
}

impl Fault {
    /// The status of the response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::TargetTooLong { .. } => StatusCode::URI_TOO_LONG,
            Self::HeadTooLong { .. } | Self::TooManyHeaders { .. } => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
            Self::HeadTooSlow { .. } => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// Creates the responses that do not come from a router. A body is buffered before it is sent, so it should be small.
pub trait Answers: Send + Sync + 'static {
    /// The response to a request that was refused before routing. `request_id` is the unchecked value of `X-Request-Id`, if the head
    /// could be parsed that far.
    fn fault(&self, fault: Fault, request_id: Option<&HeaderValue>) -> Response;

    /// The redirect (`301`) to `location`. The caller sets the `Location` header.
    fn moved(&self, location: &str, request_id: Option<&HeaderValue>) -> Response;
}
