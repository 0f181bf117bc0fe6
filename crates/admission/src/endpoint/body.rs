//! The bodies that endpoints declare: of requests and of responses.

use std::marker::PhantomData;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use reader::{Parsed, RequestBody, RequestRefusal};
use serde::Serialize;

use super::ignored::IgnoredReport;
use crate::error::{ApiError, InvalidJson};

/// The body of a request, as its handler gets it.
pub trait Payload: Send + 'static {
    /// `most` is the declared bound in bytes.
    fn new(body: Body, most: usize) -> Self;

    /// Where the handler reports ignored fields of the body. `None` for a body without fields.
    fn ignored(&self) -> Option<IgnoredReport> {
        None
    }
}

/// No body is declared: one that is sent is not read.
pub struct NoBody;

/// Content that is forwarded as it arrives, without a bound.
pub struct RawBody(pub Body);

/// A JSON document of type `T` on its way.
pub struct JsonBody<T> {
    pub body: Body,
    /// The largest body in bytes.
    pub most: usize,
    pub ignored: IgnoredReport,
    document: PhantomData<fn() -> T>,
}

/// The bytes of a JSON document of type `T`, not parsed yet.
pub struct Received<T> {
    pub bytes: Bytes,
    ignored: IgnoredReport,
    document: PhantomData<fn() -> T>,
}

impl<T> Received<T> {
    pub fn new(bytes: Bytes, ignored: IgnoredReport) -> Self {
        Self { bytes, ignored, document: PhantomData }
    }
}

impl<T: RequestBody> Received<T> {
    /// Parses the document, and reports its ignored fields.
    pub fn parse(&self) -> Result<T::Content, RequestRefusal> {
        let Parsed { content, ignored } = T::parse(&self.bytes)?;
        self.ignored.fill(ignored);
        Ok(content)
    }

    /// Parses and checks the document, and reports its ignored fields.
    pub fn read(&self, rules: &T::Rules) -> Result<T::Validated, RequestRefusal> {
        T::check(self.parse()?, rules)
    }

    /// Reports the ignored fields of a document that was never read, because its response is a replayed one.
    pub fn report_ignored(&self) {
        if self.ignored.is_filled() {
            return;
        }
        if let Ok(Parsed { ignored, .. }) = T::parse(&self.bytes) {
            self.ignored.fill(ignored);
        }
    }
}

impl<T> Clone for Received<T> {
    fn clone(&self) -> Self {
        Self::new(self.bytes.clone(), self.ignored.clone())
    }
}

impl Payload for NoBody {
    fn new(_: Body, _: usize) -> Self {
        Self
    }
}

impl Payload for RawBody {
    fn new(body: Body, _: usize) -> Self {
        Self(body)
    }
}

impl<T: 'static> Payload for JsonBody<T> {
    fn new(body: Body, most: usize) -> Self {
        Self { body, most, ignored: IgnoredReport::default(), document: PhantomData }
    }

    fn ignored(&self) -> Option<IgnoredReport> {
        Some(self.ignored.clone())
    }
}

/// A document of a response as JSON.
pub fn serialize(document: &impl Serialize) -> Result<Bytes, ApiError> {
    let fault = |error| ApiError::internal(InvalidJson("a response cannot be serialized", error));
    serde_json::to_vec(document).map(Bytes::from).map_err(fault)
}

/// A response whose body is a JSON document of type `T`.
pub struct Json<T> {
    response: Response,
    document: PhantomData<fn() -> T>,
}

impl<T: Serialize> Json<T> {
    /// A `200`.
    pub fn ok(document: &T) -> Result<Self, ApiError> {
        Self::with_status(StatusCode::OK, document)
    }

    /// A `201`.
    pub fn created(document: &T) -> Result<Self, ApiError> {
        Self::with_status(StatusCode::CREATED, document)
    }

    fn with_status(status: StatusCode, document: &T) -> Result<Self, ApiError> {
        let text = serialize(document)?;
        let kind = HeaderValue::from_static("application/json; charset=utf-8");
        Ok(Self::written((status, [(header::CONTENT_TYPE, kind)], text).into_response()))
    }
}

impl<T> Json<T> {
    /// A response whose body was written before, such as one that was stored under an idempotency key.
    pub fn written(response: Response) -> Self {
        Self { response, document: PhantomData }
    }
}

impl<T> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        self.response
    }
}
