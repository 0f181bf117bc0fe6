//! Errors as bodies carry them (section 7). Which fault of the service becomes which code is for the server to say.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The body of every answer that is an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    pub error: ErrorObject,
}

/// What went wrong. Also the data of a stream's `error` event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorObject {
    pub code: ErrorCode,
    /// For people: names what came and what is allowed.
    #[cfg_attr(feature = "openapi", schema(example = "resources.cpu is 3; allowed is one of 2, 4, 8"))]
    pub message: String,
    /// More for programs; empty where there is no more. For a sandbox that is not there: its `sandboxId`.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::details, required = true))]
    pub details: Map<String, Value>,
    /// The same as the header `X-Request-Id`.
    #[cfg_attr(feature = "openapi", schema(example = "req_7k2m9x4p1v8q3t6w0z5y"))]
    pub request_id: String,
}

macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $variant:ident $name:tt $status:tt,)+) => {
        /// Every code of an error, each with one HTTP status.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum ErrorCode {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $variant,)+
        }

        impl ErrorCode {
            /// All codes, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As bodies write it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The HTTP status that goes with it.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            /// When it is given, in a sentence for the documentation.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+).trim_ascii_start()),+ }
            }
        }
    };
}

codes! {
    /// Malformed body, path or query parameters, a missing or wrongly typed field.
    InvalidRequest "INVALID_REQUEST" 400,
    /// A value out of its range or set.
    InvalidConfig "INVALID_CONFIG" 400,
    /// The command is longer than 64 KB.
    CommandTooLong "COMMAND_TOO_LONG" 400,
    /// The API key is missing or not valid.
    Unauthorized "UNAUTHORIZED" 401,
    /// The key is valid and lacks the scope for this.
    Forbidden "FORBIDDEN" 403,
    /// The sandbox does not permit this with the file or directory.
    PermissionDenied "PERMISSION_DENIED" 403,
    /// The network policy of the sandbox does not let this port be exposed.
    PortNotAllowed "PORT_NOT_ALLOWED" 403,
    /// The sandbox does not exist or was terminated.
    SandboxNotFound "SANDBOX_NOT_FOUND" 404,
    /// There is no such file or directory in the sandbox.
    FileNotFound "FILE_NOT_FOUND" 404,
    /// The port is not exposed.
    PortNotFound "PORT_NOT_FOUND" 404,
    /// The sandbox has no such execution.
    ExecutionNotFound "EXECUTION_NOT_FOUND" 404,
    /// There is nothing at this path.
    NotFound "NOT_FOUND" 404,
    /// The path does not take this method; the header `Allow` names those it takes.
    MethodNotAllowed "METHOD_NOT_ALLOWED" 405,
    /// The time of the command was used up before it could start.
    ExecutionTimeout "EXECUTION_TIMEOUT" 408,
    /// The operation does not suit the state that the sandbox is in.
    InvalidState "INVALID_STATE" 409,
    /// There is something of that name already.
    FileExists "FILE_EXISTS" 409,
    /// A directory, a device, a fifo or a socket is where a file has to be.
    NotAFile "NOT_A_FILE" 409,
    /// Something else is where a directory has to be.
    NotADirectory "NOT_A_DIRECTORY" 409,
    /// The execution has ended.
    ExecutionEnded "EXECUTION_ENDED" 409,
    /// The execution's standard input was closed, or never open.
    StdinClosed "STDIN_CLOSED" 409,
    /// The execution has no terminal.
    NotATerminal "NOT_A_TERMINAL" 409,
    /// The directory is not empty; `recursive` deletes it with all in it.
    DirectoryNotEmpty "DIRECTORY_NOT_EMPTY" 409,
    /// Too many requests, creations or concurrent executions; the header `Retry-After` says when to try again.
    RateLimited "RATE_LIMITED" 429,
    /// The account has as much as the operator allows it; `details` has the quota and the numbers.
    QuotaExceeded "QUOTA_EXCEEDED" 429,
    /// An unexpected fault of the server.
    InternalError "INTERNAL_ERROR" 500,
    /// A fault inside of the sandbox while a command was executed.
    ExecutionError "EXECUTION_ERROR" 502,
    /// Nothing in the sandbox listens on the port, or what does gave no answer that can be passed on.
    PortUnreachable "PORT_UNREACHABLE" 502,
    /// No compute capacity at the moment; try again later.
    ResourceExhausted "RESOURCE_EXHAUSTED" 503,
    /// The disk of the sandbox is full.
    DiskFull "DISK_FULL" 507,
}

/// A text that is no code of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a code of an error of this version")]
pub struct UnknownErrorCode;

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text).ok_or(UnknownErrorCode)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ErrorBody {
    /// An error without details.
    pub fn new(code: ErrorCode, message: impl Into<String>, request_id: impl Into<String>) -> Self {
        let error =
            ErrorObject { code, message: message.into(), details: Map::new(), request_id: request_id.into() };
        Self { error }
    }

    /// With one more detail.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.error.details.insert(name.to_owned(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_specification() {
        let rows = [
            (400, "INVALID_REQUEST"),
            (400, "INVALID_CONFIG"),
            (400, "COMMAND_TOO_LONG"),
            (401, "UNAUTHORIZED"),
            (403, "FORBIDDEN"),
            (404, "SANDBOX_NOT_FOUND"),
            (408, "EXECUTION_TIMEOUT"),
            (409, "INVALID_STATE"),
            (429, "RATE_LIMITED"),
            (500, "INTERNAL_ERROR"),
            (502, "EXECUTION_ERROR"),
            (503, "RESOURCE_EXHAUSTED"),
            // Ours: the specification has no row for these.
            (404, "NOT_FOUND"),
            (405, "METHOD_NOT_ALLOWED"),
            (403, "PERMISSION_DENIED"),
            (404, "FILE_NOT_FOUND"),
            (404, "EXECUTION_NOT_FOUND"),
            (409, "FILE_EXISTS"),
            (409, "EXECUTION_ENDED"),
            (409, "STDIN_CLOSED"),
            (409, "NOT_A_TERMINAL"),
            (409, "NOT_A_FILE"),
            (409, "NOT_A_DIRECTORY"),
            (409, "DIRECTORY_NOT_EMPTY"),
            (507, "DISK_FULL"),
            (403, "PORT_NOT_ALLOWED"),
            (404, "PORT_NOT_FOUND"),
            (502, "PORT_UNREACHABLE"),
            (429, "QUOTA_EXCEEDED"),
        ];
        assert_eq!(rows.len(), ErrorCode::ALL.len());
        for (status, name) in rows {
            let code: ErrorCode = name.parse().unwrap();
            assert_eq!((code.status(), code.as_str()), (status, name));
            assert_eq!(serde_json::to_value(code).unwrap(), name);
            assert_eq!(serde_json::from_value::<ErrorCode>(name.into()).unwrap(), code);
            assert!(code.meaning().ends_with('.') && !code.meaning().starts_with(' '));
        }
        assert_eq!("invalid_request".parse::<ErrorCode>(), Err(UnknownErrorCode));
    }

    #[test]
    fn a_body_has_details_even_if_there_are_none() {
        let body = ErrorBody::new(ErrorCode::NotFound, "nothing is at '/x'", "req_1");
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            r#"{"error":{"code":"NOT_FOUND","message":"nothing is at '/x'","details":{},"requestId":"req_1"}}"#
        );
        let body = body.with("sandboxId", "sb_abcdefgh").with("state", "terminated");
        let json = serde_json::to_value(&body).unwrap();
        assert_eq!(json["error"]["details"]["sandboxId"], "sb_abcdefgh");
        assert_eq!(serde_json::from_value::<ErrorBody>(json).unwrap(), body);
    }
}
