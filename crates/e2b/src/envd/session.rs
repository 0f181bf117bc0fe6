//! What the handlers of one request share: the sandbox, and why the request may use it.

use std::convert::Infallible;

use admission::endpoint::{Door, Matched};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::Response;
use time::OffsetDateTime;

use super::FILES;
use super::auth::{Grant, TokenCheck};
use super::connect::{Code, RpcError};
use super::failure::{Failure, Form, http_error};
use super::query::FileQuery;
use super::signature::{self, Signed, SignedOperation};
use super::target::Target;

/// An authorized request.
pub struct EnvdSession {
    pub target: Target,
    pub right: Right,
}

impl Door for EnvdSession {
    /// The handlers give errors their form.
    type Error = Infallible;
}

/// Why a request may use the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Right {
    Granted(Grant),
    /// The link of the request has a signature.
    Signed,
    /// Everybody may ask this.
    Open,
}

/// Why a request may not use the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRight {
    /// Of a request for files.
    File(RpcError),
    /// The access token is missing or wrong.
    NoToken,
}

impl NoRight {
    pub fn response(self, shown_id: &str) -> Response {
        match self {
            Self::File(error) => Failure::from(error).response(Form::Http, shown_id),
            Self::NoToken => {
                let message = "the header X-Access-Token is missing or does not match";
                http_error(StatusCode::UNAUTHORIZED, message)
            }
        }
    }
}

impl Right {
    /// Decides by the declaration that a request has matched.
    pub fn of(
        target: &Target,
        matched: &Matched<'_, EnvdSession>,
        (method, uri, headers): (&Method, &Uri, &HeaderMap),
    ) -> Result<Self, NoRight> {
        if let Matched::Endpoint(endpoint) = matched
            && endpoint.access.scope().is_none()
        {
            return Ok(Self::Open);
        }
        if uri.path() == FILES {
            return authorize(target, method, uri, headers).map_err(NoRight::File);
        }
        match target.check_token(headers) {
            TokenCheck::Valid(grant) => Ok(Self::Granted(grant)),
            TokenCheck::Wrong | TokenCheck::Missing => Err(NoRight::NoToken),
        }
    }

    /// The key whose holder asks.
    pub fn key_id(&self) -> Option<&str> {
        match self {
            Self::Granted(grant) => grant.key_id(),
            Self::Signed | Self::Open => None,
        }
    }

    /// What a stream depends on.
    pub fn grant(&self) -> Grant {
        match self {
            Self::Granted(grant) => grant.clone(),
            Self::Signed | Self::Open => Grant::Open,
        }
    }
}

/// A request for files has the access token or a signature.
fn authorize(target: &Target, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Right, RpcError> {
    let operation = if *method == Method::POST { SignedOperation::Write } else { SignedOperation::Read };
    let query = FileQuery::parse(uri.query())?;
    let refuse = |message: String| RpcError::new(Code::Unauthenticated, message);
    match target.check_token(headers) {
        TokenCheck::Valid(grant) => Ok(Right::Granted(grant)),
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
                .map(|()| Right::Signed)
                .map_err(|refusal| refuse(refusal.to_string()))
        }
    }
}
