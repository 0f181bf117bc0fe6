//! A call of the Connect protocol after authentication, and the response of streams.

use std::io;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};

use super::auth::{self, Grant};
use super::connect::{CallKind, CallOptions, Code, RpcError, call_options, end_of_stream};
use super::failure::{Failure, STREAM_TYPE};
use super::session::EnvdSession;
use super::target::Target;

/// A call.
pub struct EnvdCall {
    pub target: Target,
    /// The user that the call acts for.
    pub user: String,
    pub options: CallOptions,
    pub body: Body,
    /// Why the caller may do this.
    pub grant: Grant,
}

impl EnvdCall {
    /// Reads the headers.
    pub fn open(
        session: &EnvdSession,
        kind: CallKind,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Self, Failure> {
        let target = session.target.clone();
        let user = auth::user(headers, target.defaults.user())?;
        let options = call_options(headers, kind)?;
        let grant = session.right.grant();
        Ok(Self { target, user, options, body, grant })
    }
}

const REVOKED: &str = "the API key of the access token was revoked or has expired";
/// Interval of checks whether the grant of an open stream still holds.
const CHECK_EVERY: Duration = Duration::from_secs(5);

/// A response of envelopes that stays open. It ends with an error when the key of its token is revoked. The process of a stream runs on.
pub fn granted_stream(
    envelopes: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static,
    target: Target,
    grant: Grant,
) -> Response {
    let checks = tokio::time::interval(CHECK_EVERY);
    let state = Some((Box::pin(envelopes), checks, target, grant));
    stream_response(stream::unfold(state, |state| async move {
        let (mut envelopes, mut checks, target, grant) = state?;
        loop {
            tokio::select! {
                biased;
                _ = checks.tick() => {
                    if !target.allows(&grant) {
                        let error = RpcError::new(Code::Unauthenticated, REVOKED);
                        return Some((Ok(end_of_stream(Some(&error))), None));
                    }
                }
                next = envelopes.next() => return Some((next?, Some((envelopes, checks, target, grant)))),
            }
        }
    }))
}

/// Work for an open request, which ends with an error when the key of its token is revoked.
pub async fn while_granted<T>(
    target: &Target,
    grant: &Grant,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let mut work = std::pin::pin!(work);
    loop {
        match tokio::time::timeout(CHECK_EVERY, &mut work).await {
            Ok(done) => return done,
            Err(_) if target.allows(grant) => {}
            Err(_) => return Err(Failure::new(Code::Unauthenticated, REVOKED)),
        }
    }
}

/// A response of envelopes. An error of the stream cuts the connection.
pub fn stream_response(envelopes: impl Stream<Item = Result<Bytes, io::Error>> + Send + 'static) -> Response {
    ([(header::CONTENT_TYPE, STREAM_TYPE)], Body::from_stream(envelopes)).into_response()
}
