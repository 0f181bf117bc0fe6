//! Error bodies (docs/errors.md). The server maps its errors to these codes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    pub error: ErrorObject,
}

/// An error. Also the data of a stream's event `error`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ErrorObject {
    pub code: ErrorCode,
    /// Message for people; its wording may change. If a value is not allowed, it names the field, the value and what is allowed.
    #[cfg_attr(feature = "openapi", schema(example = "resources.cpu is 3; allowed: 2, 4 or 8"))]
    pub message: String,
    /// Details for programs; an empty object if there are none. `field` for an invalid field, `sandboxId` if the error is about
    /// a sandbox.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::details, required = true))]
    pub details: Map<String, Value>,
    /// Id of the request, the same as in the header `X-Request-Id`.
    #[cfg_attr(feature = "openapi", schema(example = "req_7k2m9x4p1v8q3t6w0z5y"))]
    pub request_id: String,
}

macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $variant:ident $name:tt $status:tt,)+) => {
        /// Error code. docs/errors.md describes each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub enum ErrorCode {
            $($(#[doc = $meaning])+ #[serde(rename = $name)] $variant,)+
        }

        impl ErrorCode {
            /// All codes, in the order of their statuses.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The name in bodies.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),+ }
            }

            /// The meaning, as a sentence.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($meaning),+).trim_ascii_start()),+ }
            }
        }
    };
}

codes! {
    /// Malformed body, path or query parameters, a missing or wrongly typed field.
    InvalidRequest "INVALID_REQUEST" 400,
    /// A value that is not allowed.
    InvalidConfig "INVALID_CONFIG" 400,
    /// The command is longer than 65,536 bytes.
    CommandTooLong "COMMAND_TOO_LONG" 400,
    /// The API key is missing or not valid.
    Unauthorized "UNAUTHORIZED" 401,
    /// The key is valid and lacks the scope for this.
    Forbidden "FORBIDDEN" 403,
    /// The sandbox denies the file operation.
    PermissionDenied "PERMISSION_DENIED" 403,
    /// The sandbox's `network.ingress.allowPorts` does not include the port.
    PortNotAllowed "PORT_NOT_ALLOWED" 403,
    /// The sandbox does not exist or was terminated.
    SandboxNotFound "SANDBOX_NOT_FOUND" 404,
    /// The path does not exist in the sandbox.
    FileNotFound "FILE_NOT_FOUND" 404,
    /// The port is not exposed.
    PortNotFound "PORT_NOT_FOUND" 404,
    /// The sandbox has no such execution.
    ExecutionNotFound "EXECUTION_NOT_FOUND" 404,
    /// The snapshot does not exist or was deleted.
    SnapshotNotFound "SNAPSHOT_NOT_FOUND" 404,
    /// The template does not exist or was deleted.
    TemplateNotFound "TEMPLATE_NOT_FOUND" 404,
    /// The code interpreter has no such context.
    ContextNotFound "CONTEXT_NOT_FOUND" 404,
    /// The API has no such path.
    NotFound "NOT_FOUND" 404,
    /// The path does not support this method. The header `Allow` lists the supported methods.
    MethodNotAllowed "METHOD_NOT_ALLOWED" 405,
    /// The command's timeout expired before it started.
    ExecutionTimeout "EXECUTION_TIMEOUT" 408,
    /// The operation is not allowed in the sandbox's state.
    InvalidState "INVALID_STATE" 409,
    /// The isolation of the sandbox cannot do this, or its processes were stored by another release of it.
    IsolationMismatch "ISOLATION_MISMATCH" 409,
    /// The path exists already.
    FileExists "FILE_EXISTS" 409,
    /// A file is required, but the path is a directory, device, FIFO or socket.
    NotAFile "NOT_A_FILE" 409,
    /// A directory is required, but the path is something else.
    NotADirectory "NOT_A_DIRECTORY" 409,
    /// The execution has ended.
    ExecutionEnded "EXECUTION_ENDED" 409,
    /// The sandbox's image has no code interpreter.
    NoInterpreter "NO_INTERPRETER" 409,
    /// The execution's standard input is not open.
    StdinClosed "STDIN_CLOSED" 409,
    /// The execution has no terminal.
    NotATerminal "NOT_A_TERMINAL" 409,
    /// The directory is not empty; `recursive` deletes it with its contents.
    DirectoryNotEmpty "DIRECTORY_NOT_EMPTY" 409,
    /// Too many requests, creations or concurrent executions; the header `Retry-After` says when to try again.
    RateLimited "RATE_LIMITED" 429,
    /// The request exceeds a quota of the account; `details` has the quota and the numbers.
    QuotaExceeded "QUOTA_EXCEEDED" 429,
    /// An internal error of the service.
    InternalError "INTERNAL_ERROR" 500,
    /// The sandbox failed during a command or a file operation.
    ExecutionError "EXECUTION_ERROR" 502,
    /// Nothing listens on the port, or the program's response is invalid or late.
    PortUnreachable "PORT_UNREACHABLE" 502,
    /// The service lacks capacity at the moment; retry later.
    ResourceExhausted "RESOURCE_EXHAUSTED" 503,
    /// The disk of the sandbox is full.
    DiskFull "DISK_FULL" 507,
}

/// Not an error code of this version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an error code of this version")]
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
            // Additions to the specification.
            (404, "NOT_FOUND"),
            (405, "METHOD_NOT_ALLOWED"),
            (403, "PERMISSION_DENIED"),
            (404, "FILE_NOT_FOUND"),
            (404, "EXECUTION_NOT_FOUND"),
            (404, "CONTEXT_NOT_FOUND"),
            (404, "SNAPSHOT_NOT_FOUND"),
            (404, "TEMPLATE_NOT_FOUND"),
            (409, "ISOLATION_MISMATCH"),
            (409, "NO_INTERPRETER"),
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
    fn error_details_are_always_present() {
        let mut body = ErrorBody {
            error: ErrorObject {
                code: ErrorCode::NotFound,
                message: "nothing is at '/x'".to_owned(),
                details: Map::new(),
                request_id: "req_1".to_owned(),
            },
        };
        assert_eq!(
            serde_json::to_string(&body).unwrap(),
            r#"{"error":{"code":"NOT_FOUND","message":"nothing is at '/x'","details":{},"requestId":"req_1"}}"#
        );
        body.error.details.insert("sandboxId".to_owned(), "sb_abcdefgh".into());
        let json = serde_json::to_value(&body).unwrap();
        assert_eq!(json["error"]["details"]["sandboxId"], "sb_abcdefgh");
        assert_eq!(serde_json::from_value::<ErrorBody>(json).unwrap(), body);
    }
}
