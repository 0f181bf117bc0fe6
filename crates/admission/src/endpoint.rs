//! One declaration per endpoint, from which routing, authorization, rate limits, metric labels and the OpenAPI document follow.
//!
//! ```text
//! Endpoint::post(PATH, WRITE).describe(..).parameters([..]).json_body::<B>(..).returns::<R>(..).errors([..]).handler(f)
//! ```
//!
//! The second argument of the constructor is the access rule. There is no default: an endpoint without an access rule does not
//! compile, and only the handler of a [`Keyed`] endpoint gets a [`Caller`]. [`Table`] dispatches to declared endpoints and to nothing
//! else, so a path without a declaration has no handler to reach.

mod body;
mod document;
mod ignored;
pub mod parameter;
mod table;

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use rules::{Charge, KeyCharge, SandboxCharge, Scope};

use crate::error::ApiError;
use crate::keyring::Caller;
use crate::request_id::RequestId;

pub use body::{Json, JsonBody, NoBody, Payload, RawBody, Received, serialize};
pub use document::{Content, DocumentedError, Operation, Tag};
pub use parameter::Parameter;
pub use table::{Conflict, Found, Matched, Resource, Table};

/// What a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No key. The request counts against no limit.
    Open,
    Key {
        scope: Scope,
        charge: Charge,
    },
    /// A token in place of a key, which was made for a key with the scope. Without a charge the request counts against no rate limit.
    Token {
        scope: Scope,
        charge: Option<Charge>,
    },
}

impl Access {
    /// The scope that the key needs.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Self::Open => None,
            Self::Key { scope, .. } | Self::Token { scope, .. } => Some(scope),
        }
    }

    /// The rate limit that a request counts against.
    pub const fn charge(self) -> Option<Charge> {
        match self {
            Self::Open => None,
            Self::Key { charge, .. } => Some(charge),
            Self::Token { charge, .. } => charge,
        }
    }
}

/// What admission, log and metrics know of a request by its method and path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The template of the path.
    pub route: &'static str,
    pub access: Access,
}

/// What the handlers of a door share.
pub trait Door: Send + Sync + 'static {
    /// What they return in place of a response: the form of errors that the clients of the door know.
    type Error: IntoResponse + 'static;
}

/// An access rule, which decides whether the handler gets a caller.
pub trait AccessRule: Copy + Send + Sync + 'static {
    /// `()` for open endpoints, [`Caller`] for keyed ones.
    type Caller: Send + 'static;

    fn access(self) -> Access;

    /// None if the endpoint needs a caller and the request has none.
    fn caller(admitted: Option<Caller>) -> Option<Self::Caller>;
}

/// Anyone may call the endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Open;

/// The caller needs an API key with a scope, and the call counts against a rate limit.
#[derive(Debug, Clone, Copy)]
pub struct Keyed {
    pub scope: Scope,
    pub charge: Charge,
}

/// The request has a token that was made for a key with the scope. The door finds out for which one.
#[derive(Debug, Clone, Copy)]
pub struct Token {
    pub scope: Scope,
    pub charge: Option<Charge>,
}

/// Counts as a read of the key.
pub const READ: Keyed = Keyed { scope: Scope::Read, charge: Charge::Key(KeyCharge::Read) };
/// Counts as a write of the key.
pub const WRITE: Keyed = Keyed { scope: Scope::Write, charge: Charge::Key(KeyCharge::Write) };
/// Counts as a write and as a creation.
pub const CREATE: Keyed = Keyed { scope: Scope::Write, charge: Charge::Key(KeyCharge::Create) };
/// No other write keeps a client from terminating its sandboxes.
pub const TERMINATE: Keyed = Keyed { scope: Scope::Write, charge: Charge::Key(KeyCharge::Terminate) };
/// Starts a command: counts as an execution of the sandbox.
pub const EXECUTE: Keyed = Keyed { scope: Scope::Execute, charge: Charge::Sandbox(SandboxCharge::Execute) };
const OPERATION: Charge = Charge::Sandbox(SandboxCharge::Operate);
/// Reads something of one sandbox that the specification does not name: counts as an operation of the sandbox.
pub const INSPECT: Keyed = Keyed { scope: Scope::Read, charge: OPERATION };
/// Changes something of one sandbox that the specification does not name.
pub const CHANGE: Keyed = Keyed { scope: Scope::Write, charge: OPERATION };
/// Uses terminals, executions that run, and code.
pub const INTERACT: Keyed = Keyed { scope: Scope::Execute, charge: OPERATION };

impl AccessRule for Open {
    type Caller = ();

    fn access(self) -> Access {
        Access::Open
    }

    fn caller(_: Option<Caller>) -> Option<()> {
        Some(())
    }
}

impl AccessRule for Keyed {
    type Caller = Caller;

    fn access(self) -> Access {
        Access::Key { scope: self.scope, charge: self.charge }
    }

    fn caller(admitted: Option<Caller>) -> Option<Caller> {
        admitted
    }
}

impl AccessRule for Token {
    type Caller = Option<Caller>;

    fn access(self) -> Access {
        Access::Token { scope: self.scope, charge: self.charge }
    }

    /// The token may be that of a sandbox which is open to all.
    fn caller(admitted: Option<Caller>) -> Option<Option<Caller>> {
        Some(admitted)
    }
}

/// A request that was authorized and counted, as a handler gets it. `S` is what the handlers of the door share.
pub struct Call<S, C = Caller, B = NoBody> {
    pub service: Arc<S>,
    pub caller: C,
    pub request_id: RequestId,
    /// The template of the endpoint that was called.
    pub path: &'static str,
    pub parts: Parts,
    pub body: B,
}

impl<S, C, B> Call<S, C, B> {
    /// The body apart. Only a call without one can be borrowed across awaits, because a body is not shared between threads.
    pub fn split_body(self) -> (Call<S, C>, B) {
        let Self { service, caller, request_id, path, parts, body } = self;
        (Call { service, caller, request_id, path, parts, body: NoBody }, body)
    }
}

/// An authorized request before the handler's types are known.
pub struct Authorized<S> {
    pub service: Arc<S>,
    pub caller: Option<Caller>,
    pub request_id: RequestId,
    pub request: Request,
}

type ResponseFuture = Pin<Box<dyn Future<Output = Response> + Send>>;

/// A declared endpoint of a door.
pub struct Endpoint<S> {
    pub method: Method,
    /// The template, which is also the label in logs and metrics.
    pub path: &'static str,
    pub access: Access,
    /// None for endpoints that the OpenAPI document leaves out.
    pub operation: Option<Operation>,
    /// The content type of the body that it takes, if any.
    pub media_type: Option<&'static str>,
    handler: Box<dyn Fn(Authorized<S>) -> ResponseFuture + Send + Sync>,
}

/// An endpoint under construction: `A` is the access rule, `B` the request body, `R` what the handler returns.
#[must_use]
pub struct Declaration<S, A, B = NoBody, R = Response> {
    method: Method,
    path: &'static str,
    access: A,
    operation: Option<Operation>,
    media_type: Option<&'static str>,
    /// The largest body in bytes.
    body_max: usize,
    types: PhantomData<fn(Arc<S>, B) -> R>,
}

impl<S: Door> Endpoint<S> {
    /// A `GET`, which also answers `HEAD`.
    pub fn get<A: AccessRule>(path: &'static str, access: A) -> Declaration<S, A> {
        Declaration::new(Method::GET, path, access)
    }

    /// A `POST`.
    pub fn post<A: AccessRule>(path: &'static str, access: A) -> Declaration<S, A> {
        Declaration::new(Method::POST, path, access)
    }

    /// A `PUT`.
    pub fn put<A: AccessRule>(path: &'static str, access: A) -> Declaration<S, A> {
        Declaration::new(Method::PUT, path, access)
    }

    /// A `PATCH`.
    pub fn patch<A: AccessRule>(path: &'static str, access: A) -> Declaration<S, A> {
        Declaration::new(Method::PATCH, path, access)
    }

    /// A `DELETE`.
    pub fn delete<A: AccessRule>(path: &'static str, access: A) -> Declaration<S, A> {
        Declaration::new(Method::DELETE, path, access)
    }

    /// Runs the handler.
    pub async fn call(&self, authorized: Authorized<S>) -> Response {
        (self.handler)(authorized).await
    }
}

impl<S: Door, A: AccessRule> Declaration<S, A> {
    fn new(method: Method, path: &'static str, access: A) -> Self {
        Self { method, path, access, operation: None, media_type: None, body_max: 0, types: PhantomData }
    }
}

impl<S, A, B, R> Declaration<S, A, B, R>
where
    S: Door,
    A: AccessRule,
    B: Payload,
    R: IntoResponse + 'static,
{
    /// Completes the declaration. The handler takes the declared body and returns the declared response.
    pub fn handler<H, F>(self, handler: H) -> Endpoint<S>
    where
        H: Fn(Call<S, A::Caller, B>) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, S::Error>> + Send + 'static,
    {
        let Self { method, path, access, operation, media_type, body_max, .. } = self;
        let handler = move |authorized: Authorized<S>| -> ResponseFuture {
            let Authorized { service, caller, request_id, request } = authorized;
            let Some(caller) = A::caller(caller) else {
                // Admission lets no such request through; if it did, the request is refused here.
                let error =
                    ApiError::internal("a request without a caller reached an endpoint that needs a key");
                return Box::pin(std::future::ready(error.into_response()));
            };
            let (parts, body) = request.into_parts();
            let body = B::new(body, body_max);
            let ignored = body.ignored();
            let answering = handler(Call { service, caller, request_id, path, parts, body });
            Box::pin(async move {
                let mut response = answering.await.into_response();
                if let Some(ignored) = ignored {
                    ignored.write(response.headers_mut());
                }
                response
            })
        };
        let (access, handler) = (access.access(), Box::new(handler));
        Endpoint { method, path, access, operation, media_type, handler }
    }

    /// The same declaration with other types for body and response.
    fn with_types<B2, R2>(self) -> Declaration<S, A, B2, R2> {
        let Self { method, path, access, operation, media_type, body_max, .. } = self;
        Declaration { method, path, access, operation, media_type, body_max, types: PhantomData }
    }
}
