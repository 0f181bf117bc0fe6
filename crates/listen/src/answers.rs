//! The answers that no router gives: to requests that are none, and to plain HTTP. The caller makes them, so that they look
//! like all its others; this crate only frames them.

use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;

pub(crate) const REQUEST_ID: &str = "x-request-id";

/// Why a request could not be handed to the router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("the request is not HTTP: {0}")]
    Malformed(&'static str),
    #[error("the request line is longer than {limit} bytes; shorten the path and the query")]
    TargetTooLong { limit: usize },
    #[error(
        "the request's line and headers are longer than {limit} bytes together; send fewer or shorter headers"
    )]
    HeadTooLong { limit: usize },
    #[error("the request has more than {limit} headers; send fewer")]
    TooManyHeaders { limit: usize },
    #[error("the request's headers were not complete within {limit_ms} ms; send them faster")]
    HeadTooSlow { limit_ms: u64 },
}

impl Fault {
    /// The status that fits.
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

/// Makes the answers that no router gives. The bodies are read whole before they are sent; keep them small.
pub trait Answers: Send + Sync + 'static {
    /// To a request that was refused before any route was looked for. `request_id` is the client's own `X-Request-Id`, as it
    /// was sent and unchecked, where the head could be read that far.
    fn fault(&self, fault: Fault, request_id: Option<&HeaderValue>) -> Response;

    /// `301` to `location`, which is set as the `Location` header afterwards in any case.
    fn moved(&self, location: &str, request_id: Option<&HeaderValue>) -> Response;
}
