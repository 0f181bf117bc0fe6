//! `/files`: downloads and uploads.

mod content_type;
mod download;
mod encoding;
mod inflate;
mod metadata;
mod range;
mod upload;

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode, header, request};
use axum::response::Response;
use time::OffsetDateTime;

use super::auth::{self, TokenCheck};
use super::connect::{Code, RpcError};
use super::failure::{Failure, http_error, json_response};
use super::query::FileQuery;
use super::signature::{self, Signed, SignedOperation};
use super::target::Target;

/// Answers a request to `/files`.
pub async fn answer(target: &Target, parts: &request::Parts, body: Body) -> Response {
    let operation = match parts.method {
        Method::GET | Method::HEAD => SignedOperation::Read,
        Method::POST => SignedOperation::Write,
        _ => {
            let mut response = http_error(StatusCode::METHOD_NOT_ALLOWED, "allowed: GET, HEAD, POST");
            response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD, POST"));
            return response;
        }
    };
    let query = match FileQuery::parse(parts.uri.query()) {
        Ok(query) => query,
        Err(error) => return Failure::from(error).http_response(&target.shown_id),
    };
    let mut permit = None;
    let answered = async {
        let access = authorize(target, &parts.headers, &query, operation)?;
        let user = match (query.username.as_str(), access) {
            ("", Access::Token) => auth::user(&parts.headers, target.defaults.user())?,
            // The owner of the token has signed the user, and the holder of the signature must not choose another one.
            ("", Access::Signature) => target.defaults.user().to_owned(),
            (name, _) => name.to_owned(),
        };
        permit = Some(target.enter(&parts.headers)?);
        match operation {
            SignedOperation::Read => download::answer(target, &user, &query.path, parts).await,
            SignedOperation::Write => {
                let written = upload::answer(target, &user, &query.path, &parts.headers, body).await?;
                Ok(json_response(StatusCode::OK, &written))
            }
        }
    };
    let response = answered.await.unwrap_or_else(|failure: Failure| failure.http_response(&target.shown_id));
    let Some(permit) = permit else { return response };
    permit(response)
}

/// Whether a request has the access token or a valid signature.
pub fn is_authorized(target: &Target, parts: &request::Parts) -> bool {
    let operation = if parts.method == Method::POST { SignedOperation::Write } else { SignedOperation::Read };
    let query = FileQuery::parse(parts.uri.query());
    query.is_ok_and(|query| authorize(target, &parts.headers, &query, operation).is_ok())
}

/// What allows a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Token,
    Signature,
}

/// Requires the access token or a signature.
fn authorize(
    target: &Target,
    headers: &HeaderMap,
    query: &FileQuery,
    operation: SignedOperation,
) -> Result<Access, RpcError> {
    let refuse = |message: String| RpcError::new(Code::Unauthenticated, message);
    match target.check_token(headers) {
        TokenCheck::Valid(_) => Ok(Access::Token),
        TokenCheck::Wrong => Err(refuse("access token present in header but does not match".to_owned())),
        TokenCheck::Missing => {
            let signed = Signed {
                path: &query.path,
                operation,
                user: &query.username,
                expiration: query.signature_expiration,
            };
            let now_s = OffsetDateTime::now_utc().unix_timestamp();
            signature::check(query.signature.as_deref(), signed, &target.valid_tokens(), now_s)
                .map(|()| Access::Signature)
                .map_err(|refusal| refuse(refusal.to_string()))
        }
    }
}
