//! A call of the Connect protocol after authentication, and the response of streams.

use std::io;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::Stream;

use super::connect::CallOptions;
use super::failure::STREAM_TYPE;
use super::target::Target;

/// A call.
pub struct Call {
    pub target: Target,
    /// The user that the call acts for.
    pub user: String,
    pub options: CallOptions,
    pub body: Body,
}

/// A response of envelopes. An error of the stream cuts the connection.
pub fn stream_response(envelopes: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, STREAM_TYPE)], Body::from_stream(envelopes)).into_response()
}
