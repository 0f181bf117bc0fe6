//! Passes one request to the application, or answers it with a redirect, and settles what is left of its body (`leftover`).
//! `head_filter` has checked HTTP/1 heads; the size of HTTP/2 heads is checked here, where a response is possible.

use std::convert::Infallible;
use std::future::ready;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::header::{HOST, LOCATION};
use axum::http::{HeaderValue, Method, Request, StatusCode, Version};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Incoming};
use hyper_util::service::TowerToHyperService;

use crate::activity::{Activity, InFlight};
use crate::answers::{Answers, Fault, REQUEST_ID};
use crate::body::{Pace, ResponseBody};
use crate::leftover::{Drainer, Leftover};
use crate::redirect::HttpsAuthority;
use crate::settings::{Limits, MAX_HEADERS};
use crate::takeover::{Takeover, TakeoverSlot};

/// HTTP/2 adds this to the size of each header (RFC 9113 section 10.5.1).
const OVERHEAD_BYTES: usize = 32;

/// The peer's address, an extension of every request. Behind a proxy it is the proxy's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub SocketAddr);

/// The future of a response.
pub type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

/// Answers requests: a router, or a layer before one.
pub trait Application: Send + Sync + 'static {
    fn answer(&self, request: Request<Body>) -> Answer;
}

impl Application for Router {
    fn answer(&self, request: Request<Body>) -> Answer {
        let answering = hyper::service::Service::call(&TowerToHyperService::new(self.clone()), request);
        Box::pin(async move {
            let Ok(response) = answering.await;
            response
        })
    }
}

/// How the requests of a connection are answered.
#[derive(Clone)]
pub enum RequestTarget {
    Application(Arc<dyn Application>),
    Redirect(Arc<HttpsAuthority>),
}

/// The service of one connection.
pub struct Dispatch {
    pub target: RequestTarget,
    pub answers: Arc<dyn Answers>,
    pub limits: Arc<Limits>,
    pub peer: PeerAddr,
    pub activity: Arc<Activity>,
    pub drainer: Arc<Drainer>,
    /// Receives the takeover of a response. `None` over HTTP/2.
    pub slot: Option<TakeoverSlot>,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<ResponseBody>, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Dispatch {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn call(&self, request: Request<Incoming>) -> ResponseFuture {
        let flight = self.activity.begin();
        let (request, leftover) = self.lend(request);
        let answer: Answer = match (too_large(&request, &self.limits), &self.target) {
            (Some(fault), _) => Box::pin(ready(self.refuse(fault, &request))),
            (None, RequestTarget::Redirect(to)) => {
                Box::pin(ready(moved(self.answers.as_ref(), to, &request)))
            }
            (None, RequestTarget::Application(application)) => application.answer(request),
        };
        let (activity, slot) = (Arc::clone(&self.activity), self.slot.clone());
        Box::pin(async move {
            let mut response = answer.await;
            if let Some(leftover) = leftover {
                leftover.settle(&mut response).await;
            }
            if response.status() == StatusCode::SWITCHING_PROTOCOLS
                && let Some(takeover) = response.extensions_mut().remove::<Takeover>()
                && let Some(slot) = slot
            {
                slot.put(takeover, activity.begin());
            }
            Ok(counted(response, flight))
        })
    }
}

impl Dispatch {
    /// The request as the application gets it, and what it leaves of the body.
    fn lend(&self, request: Request<Incoming>) -> (Request<Body>, Option<Leftover>) {
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(self.peer);
        if body.is_end_stream() {
            return (Request::from_parts(parts, Body::empty()), None);
        }
        let pace = Pace::default();
        parts.extensions.insert(pace.clone());
        let (body, leftover) = self.drainer.lend(body, &parts, pace);
        (Request::from_parts(parts, Body::new(body)), leftover)
    }

    fn refuse(&self, fault: Fault, request: &Request<Body>) -> Response {
        let mut response = self.answers.fault(fault, request.headers().get(REQUEST_ID));
        if request.method() == Method::HEAD {
            // A body would be a protocol error over HTTP/2.
            *response.body_mut() = Body::empty();
        }
        response
    }
}

/// Runs in the task of the stream, not in that of the connection; see [`ResponseBody::new`].
fn counted(response: Response, flight: InFlight) -> Response<ResponseBody> {
    response.map(|body| ResponseBody::new(body, flight))
}

fn too_large(request: &Request<Body>, limits: &Limits) -> Option<Fault> {
    if request.version() != Version::HTTP_2 {
        return None;
    }
    let headers = request.headers();
    if headers.len() > MAX_HEADERS {
        return Some(Fault::TooManyHeaders { limit: MAX_HEADERS });
    }
    let target = request.uri().path_and_query().map_or(0, |it| it.as_str().len());
    let bytes = |(name, value): (&axum::http::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + OVERHEAD_BYTES
    };
    let total = target + headers.iter().map(bytes).sum::<usize>();
    let limit = limits.max_head_bytes;
    if target > limit {
        return Some(Fault::TargetTooLong { limit });
    }
    (total > limit).then_some(Fault::HeadTooLong { limit })
}

fn moved(answers: &dyn Answers, to: &HttpsAuthority, request: &Request<Body>) -> Response {
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let location = to.location(host, request.uri());
    let mut response = answers.moved(&location, request.headers().get(REQUEST_ID));
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    // `location` returns printable ASCII only.
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request whose target has `target` bytes and whose headers `headers` have `value` bytes each.
    fn request(version: Version, target: usize, headers: usize, value: usize) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.version_mut() = version;
        *request.uri_mut() = format!("/{}", "t".repeat(target - 1)).parse().unwrap();
        for number in 0..headers {
            let name = axum::http::HeaderName::try_from(format!("x-{number:03}")).unwrap();
            request.headers_mut().insert(name, "v".repeat(value).parse().unwrap());
        }
        request
    }

    #[test]
    fn heads_of_http2_are_bounded_as_those_of_http1() {
        let limits = Limits { max_head_bytes: 1000, ..Limits::default() };
        // A name has five bytes, and HTTP/2 adds 32 for each header.
        let per_header = 5 + OVERHEAD_BYTES;
        let (long, large) =
            (Some(Fault::TargetTooLong { limit: 1000 }), Some(Fault::HeadTooLong { limit: 1000 }));
        for (target, headers, value, fault) in [
            (1, 0, 0, None),
            (1000, 0, 0, None),
            (1001, 0, 0, long),
            (1000, 1, 0, large),
            (1000 - per_header, 1, 0, None),
            (1001 - per_header, 1, 0, large),
            (100, 1, 900 - per_header, None),
            (100, 1, 901 - per_header, large),
            (100, 2, 450 - per_header, None),
            (100, 2, 451 - per_header, large),
            // The target is named first, because shorter headers would not help.
            (1001, 2, 100, long),
        ] {
            let request = request(Version::HTTP_2, target, headers, value);
            assert_eq!(too_large(&request, &limits), fault, "{target} {headers} {value}");
        }
    }

    #[test]
    fn the_number_of_headers_is_bounded_before_their_size() {
        let limits = Limits { max_head_bytes: 1000, ..Limits::default() };
        let most = request(Version::HTTP_2, 1, MAX_HEADERS, 0);
        assert_eq!(too_large(&most, &Limits::default()), None);
        let more = request(Version::HTTP_2, 1, MAX_HEADERS + 1, 0);
        let fault = Some(Fault::TooManyHeaders { limit: MAX_HEADERS });
        assert_eq!(too_large(&more, &Limits::default()), fault);
        assert_eq!(too_large(&more, &limits), fault);
    }

    #[test]
    fn heads_of_http1_were_checked_before() {
        let limits = Limits { max_head_bytes: 10, ..Limits::default() };
        for version in [Version::HTTP_10, Version::HTTP_11] {
            assert_eq!(too_large(&request(version, 100, MAX_HEADERS + 1, 100), &limits), None);
        }
    }
}
