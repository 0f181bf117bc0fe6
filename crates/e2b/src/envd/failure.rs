//! Why a request to a sandbox failed, and the responses for it: as a Connect error, or with the JSON body of `/files`.

use std::sync::Arc;

use admission::error::ApiError;
use admission::record::ErrorSummary;
use api::ErrorCode;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use engine::{
    AgentError, CapacityError, DaemonError, EngineError, ExecutionError, FileError, FileErrorKind,
    ProcessError, ProcessRefusal, SandboxError,
};
use serde_json::{Value, json};
use service::error::{OperationKind, of_engine};

use super::connect::{CallKind, Code, RpcError, end_of_stream};

/// The content type of streams. Clients compare it exactly.
pub const STREAM_TYPE: HeaderValue = HeaderValue::from_static("application/connect+json");

/// The content type of unary responses.
pub const JSON_TYPE: HeaderValue = HeaderValue::from_static("application/json");

/// A failure of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The sandbox's disk is full.
    #[error("{0}")]
    NoSpace(String),
    /// The sandbox is paused or terminated.
    #[error("the sandbox is not running")]
    NotRunning,
    /// The service itself failed. The cause is in the log.
    #[error("internal error of the service")]
    Unexpected,
}

/// What the client of a request understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Rpc(CallKind),
    /// The bodies of `/files`.
    Http,
}

/// What admission or the memory of the account refuses.
impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        if error.code != ErrorCode::InternalError {
            return RpcError::refused(error).into();
        }
        tracing::error!(cause = error.cause_text(), "a request to a sandbox failed");
        Self::Unexpected
    }
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self::Rpc(RpcError::new(code, message))
    }

    /// The failure of an engine call.
    pub fn of(error: EngineError) -> Self {
        let code = match &error {
            EngineError::Sandbox(SandboxError::NotFound { .. } | SandboxError::Refused(_)) => {
                return Self::NotRunning;
            }
            EngineError::File(_) => Code::Internal,
            EngineError::Process(ProcessError::NotFound { .. })
            | EngineError::Execution(ExecutionError::NotFound { .. } | ExecutionError::Ended { .. }) => {
                Code::NotFound
            }
            EngineError::Process(ProcessError::Invalid(_)) => Code::InvalidArgument,
            EngineError::Process(ProcessError::Refused { refusal, .. }) => of_refusal(*refusal),
            EngineError::Execution(ExecutionError::TooMany(_) | ExecutionError::NeverStarted(_))
            | EngineError::Capacity(CapacityError::NoCapacity(_) | CapacityError::Quota(_))
            | EngineError::Agent(AgentError::Busy { .. }) => Code::ResourceExhausted,
            EngineError::Capacity(CapacityError::Shortage(_))
            | EngineError::Daemon(DaemonError::Stopping) => Code::Unavailable,
            EngineError::Execution(ExecutionError::NoStdin { .. } | ExecutionError::NoTerminal { .. }) => {
                Code::Internal
            }
            EngineError::Agent(AgentError::TooOld) => Code::FailedPrecondition,
            _ => {
                tracing::error!(%error, "a request to a sandbox failed");
                return Self::Unexpected;
            }
        };
        match error {
            EngineError::File(error) => Self::of_file(error),
            error if matches!(code, Code::ResourceExhausted | Code::Unavailable) => {
                let shown = RpcError::new(code, error.to_string());
                // A busy agent and a sandbox with too many processes are none of the native API here.
                let refusal = of_engine(error, None, OperationKind::Other);
                let native = refusal.retry_after_s.map(|_| Arc::new(ErrorSummary::of(&refusal)));
                Self::Rpc(RpcError { native, ..shown })
            }
            error => Self::new(code, error.to_string()),
        }
    }

    fn of_file(FileError { kind, message }: FileError) -> Self {
        let code = match kind {
            FileErrorKind::NotFound => Code::NotFound,
            FileErrorKind::Exists => Code::AlreadyExists,
            FileErrorKind::NotAFile
            | FileErrorKind::NotADirectory
            | FileErrorKind::NotEmpty
            | FileErrorKind::Invalid
            | FileErrorKind::Interrupted => Code::InvalidArgument,
            FileErrorKind::Range => Code::OutOfRange,
            FileErrorKind::Denied => Code::PermissionDenied,
            FileErrorKind::DiskFull => return Self::NoSpace(message),
            FileErrorKind::UserMissing => Code::Unauthenticated,
            FileErrorKind::Failed => Code::Internal,
        };
        Self::new(code, message)
    }

    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Rpc(error) => Some(error.code),
            Self::Unexpected => Some(Code::Internal),
            Self::NoSpace(_) | Self::NotRunning => None,
        }
    }

    /// Replaces the message if the code is `code`.
    #[must_use]
    pub fn reworded(self, code: Code, message: impl FnOnce() -> String) -> Self {
        if self.code() == Some(code) { Self::new(code, message()) } else { self }
    }

    /// The error for a client of the Connect protocol. `None` if the failure cannot be reported in the protocol.
    pub fn to_rpc(&self) -> Option<RpcError> {
        match self {
            Self::Rpc(error) => Some(error.clone()),
            Self::NoSpace(message) => Some(RpcError::new(Code::ResourceExhausted, message)),
            Self::Unexpected => Some(RpcError::new(Code::Internal, self.to_string())),
            Self::NotRunning => None,
        }
    }

    /// The response in the form that the client understands, marked for the log if the service itself failed or a limit refuses.
    pub fn response(&self, form: Form, sandbox_id: &str) -> Response {
        let mut response = match form {
            Form::Rpc(kind) => self.rpc_response(kind, sandbox_id),
            Form::Http => self.http_response(sandbox_id),
        };
        let summary = match self {
            Self::Unexpected => Some(Arc::new(ErrorSummary::of_code(ErrorCode::InternalError))),
            Self::Rpc(error) => error.native.clone(),
            Self::NoSpace(_) | Self::NotRunning => None,
        };
        if let Some(summary) = summary {
            response.extensions_mut().insert(summary);
        }
        response
    }

    /// The response of a call. Clients ignore the body of a stream whose status is not 200.
    fn rpc_response(&self, kind: CallKind, sandbox_id: &str) -> Response {
        let Some(error) = self.to_rpc() else { return not_running(sandbox_id) };
        match kind {
            CallKind::Unary => {
                waiting(json_response(error.code.status(), &error.to_json()), error.retry_after_s)
            }
            CallKind::Stream => {
                ([(header::CONTENT_TYPE, STREAM_TYPE)], Body::from(end_of_stream(Some(&error))))
                    .into_response()
            }
        }
    }

    /// The response of `/files`.
    fn http_response(&self, sandbox_id: &str) -> Response {
        match self {
            Self::Rpc(error) => waiting(http_error(error.code.status(), &error.message), error.retry_after_s),
            Self::NoSpace(message) => http_error(StatusCode::INSUFFICIENT_STORAGE, message),
            Self::NotRunning => not_running(sandbox_id),
            Self::Unexpected => http_error(StatusCode::INTERNAL_SERVER_ERROR, &self.to_string()),
        }
    }
}

fn of_refusal(refusal: ProcessRefusal) -> Code {
    match refusal {
        ProcessRefusal::UnknownUser => Code::Unauthenticated,
        ProcessRefusal::CwdMissing | ProcessRefusal::ProgramMissing => Code::InvalidArgument,
        ProcessRefusal::NotAllowed => Code::PermissionDenied,
        ProcessRefusal::TooMany => Code::ResourceExhausted,
        ProcessRefusal::Other => Code::Internal,
    }
}

/// A refusal says when to try again.
fn waiting(mut response: Response, retry_after_s: Option<u64>) -> Response {
    if matches!(response.status(), StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        response.headers_mut().insert(header::RETRY_AFTER, retry_after_s.unwrap_or(1).into());
    }
    response
}

/// A response with a JSON body.
pub fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, JSON_TYPE)], body.to_string()).into_response()
}

/// An error response with the body of `/files`.
pub fn http_error(status: StatusCode, message: &str) -> Response {
    json_response(status, &json!({ "code": status.as_u16(), "message": message }))
}

/// The response for a sandbox that is paused or terminated. Clients recognize the message.
pub fn not_running(sandbox_id: &str) -> Response {
    let status = StatusCode::BAD_GATEWAY;
    let body = json!({ "sandboxId": sandbox_id, "message": "The sandbox was not found", "code": 502 });
    json_response(status, &body)
}

#[cfg(test)]
mod tests {
    use admission::error::{Condition, RefusalCode};

    use super::*;
    use axum::body::to_bytes;

    fn wait(response: &Response) -> Option<&str> {
        response.headers().get(header::RETRY_AFTER)?.to_str().ok()
    }

    #[test]
    fn a_refusal_says_when_to_try_again() {
        let limit = ApiError::refused(RefusalCode::RateLimited, "10 a minute", Condition::HostResources, 41);
        let refused = Failure::from(RpcError::refused(limit));
        let (call, file) = (refused.rpc_response(CallKind::Unary, "sb"), refused.http_response("sb"));
        assert_eq!((call.status().as_u16(), wait(&call), wait(&file)), (429, Some("41"), Some("41")));
        let stopping =
            Failure::of(EngineError::Daemon(DaemonError::Stopping)).rpc_response(CallKind::Unary, "sb");
        assert_eq!((stopping.status().as_u16(), wait(&stopping)), (503, Some("1")));
        let stopping = Failure::of(EngineError::Daemon(DaemonError::Stopping));
        let logged = stopping.response(Form::Http, "sb").extensions().get::<Arc<ErrorSummary>>().cloned();
        assert_eq!(logged.unwrap().limit.as_deref(), Some("stopping"));
        let busy = Failure::of(EngineError::Agent(AgentError::Busy { message: "busy".to_owned() }));
        let logged = busy.response(Form::Http, "sb").extensions().get::<Arc<ErrorSummary>>().cloned();
        assert_eq!((busy.code(), logged), (Some(Code::ResourceExhausted), None), "no internal error");
        let other = Failure::new(Code::NotFound, "no such file").rpc_response(CallKind::Unary, "sb");
        assert_eq!(wait(&other), None);
    }

    async fn body(response: Response) -> Vec<u8> {
        to_bytes(response.into_body(), 1 << 16).await.unwrap().to_vec()
    }

    #[test]
    fn errors_of_files_have_the_codes_and_statuses_that_clients_know() {
        for (kind, code, status) in [
            (FileErrorKind::NotFound, Some(Code::NotFound), 404),
            (FileErrorKind::Exists, Some(Code::AlreadyExists), 409),
            (FileErrorKind::NotAFile, Some(Code::InvalidArgument), 400),
            (FileErrorKind::NotADirectory, Some(Code::InvalidArgument), 400),
            (FileErrorKind::NotEmpty, Some(Code::InvalidArgument), 400),
            (FileErrorKind::Invalid, Some(Code::InvalidArgument), 400),
            (FileErrorKind::Interrupted, Some(Code::InvalidArgument), 400),
            (FileErrorKind::Range, Some(Code::OutOfRange), 400),
            (FileErrorKind::Denied, Some(Code::PermissionDenied), 403),
            (FileErrorKind::UserMissing, Some(Code::Unauthenticated), 401),
            (FileErrorKind::Failed, Some(Code::Internal), 500),
            (FileErrorKind::DiskFull, None, 507),
        ] {
            let failure = Failure::of_file(FileError { kind, message: "why".to_owned() });
            assert_eq!(failure.code(), code, "{kind:?}");
            assert_eq!(failure.http_response("sb").status().as_u16(), status, "{kind:?}");
        }
    }

    #[test]
    fn a_full_disk_is_a_resource_in_calls_and_507_for_files() {
        let full = Failure::NoSpace("no space".to_owned());
        assert_eq!(full.to_rpc(), Some(RpcError::new(Code::ResourceExhausted, "no space")));
        let call = full.rpc_response(CallKind::Unary, "sb");
        // Clients try a full disk again as they try a limit.
        assert_eq!((call.status().as_u16(), wait(&call)), (429, Some("1")));
        assert_eq!(wait(&full.http_response("sb")), None);
    }

    #[test]
    fn refusals_of_processes_have_codes() {
        for (refusal, code) in [
            (ProcessRefusal::UnknownUser, Code::Unauthenticated),
            (ProcessRefusal::CwdMissing, Code::InvalidArgument),
            (ProcessRefusal::ProgramMissing, Code::InvalidArgument),
            (ProcessRefusal::NotAllowed, Code::PermissionDenied),
            (ProcessRefusal::TooMany, Code::ResourceExhausted),
            (ProcessRefusal::Other, Code::Internal),
        ] {
            assert_eq!(of_refusal(refusal), code, "{refusal:?}");
        }
    }

    #[test]
    fn only_the_given_code_is_reworded() {
        let missing = Failure::new(Code::NotFound, "engine's words");
        let reworded = missing.clone().reworded(Code::NotFound, || "path 'a' does not exist".to_owned());
        assert_eq!(reworded, Failure::new(Code::NotFound, "path 'a' does not exist"));
        let other = |failure: Failure| failure.reworded(Code::NotFound, || unreachable!("another code"));
        for failure in
            [Failure::new(Code::Internal, "x"), Failure::NotRunning, Failure::NoSpace("y".to_owned())]
        {
            assert_eq!(other(failure.clone()), failure);
        }
        assert_eq!(missing.to_rpc().map(|error| error.message).as_deref(), Some("engine's words"));
    }

    #[tokio::test]
    async fn a_stream_fails_in_its_last_envelope_with_status_200() {
        let failure = Failure::new(Code::NotFound, "no process");
        let response = failure.rpc_response(CallKind::Stream, "sb");
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/connect+json");
        let envelope = body(response).await;
        assert_eq!(envelope[0], 0b10, "the end of the stream");
        assert_eq!(usize::from(envelope[4]), envelope.len() - 5);
        let json: Value = serde_json::from_slice(&envelope[5..]).unwrap();
        assert_eq!(json, json!({ "error": { "code": "not_found", "message": "no process" } }));
    }

    #[tokio::test]
    async fn a_sandbox_that_does_not_run_is_a_bad_gateway_in_every_kind_of_response() {
        let all = [
            Failure::NotRunning.rpc_response(CallKind::Unary, "sb1"),
            Failure::NotRunning.rpc_response(CallKind::Stream, "sb1"),
            Failure::NotRunning.http_response("sb1"),
        ];
        for response in all {
            assert_eq!((response.status().as_u16(), wait(&response)), (502, None));
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            let json: Value = serde_json::from_slice(&body(response).await).unwrap();
            let expected = json!({ "sandboxId": "sb1", "message": "The sandbox was not found", "code": 502 });
            assert_eq!(json, expected);
        }
    }

    #[tokio::test]
    async fn files_and_unary_calls_have_different_bodies() {
        let failure = Failure::new(Code::PermissionDenied, "no");
        let (call, file) = (failure.rpc_response(CallKind::Unary, "sb"), failure.http_response("sb"));
        assert_eq!((call.status().as_u16(), file.status().as_u16()), (403, 403));
        let of = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
        assert_eq!(of(body(call).await), json!({ "code": "permission_denied", "message": "no" }));
        assert_eq!(of(body(file).await), json!({ "code": 403, "message": "no" }));
    }
}
