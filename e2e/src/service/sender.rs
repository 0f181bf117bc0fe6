//! The sending half of an HTTP connection. The client holds it between requests, a stream as long as it is read.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{Request, Response};

/// The sender for HTTP/1.1 or HTTP/2.
pub enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Two(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    pub async fn ready(&mut self) -> hyper::Result<()> {
        match self {
            Self::One(sender) => sender.ready().await,
            Self::Two(sender) => sender.ready().await,
        }
    }

    pub async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(sender) => sender.send_request(request).await,
            Self::Two(sender) => sender.send_request(request).await,
        }
    }
}
