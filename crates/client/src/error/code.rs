//! Error codes. The conversion from `ErrorCode` is exhaustive, so a new code of the service does not compile until it is listed here.

use std::fmt;

use api::ErrorCode;

macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $variant:ident,)+) => {
        /// What went wrong: one variant for each error of the service, and five of the library.
        ///
        /// ```
        /// use sandboxd_client::Code;
        /// assert_eq!(Code::SandboxNotFound.to_string(), "SANDBOX_NOT_FOUND");
        /// assert_eq!(Code::NetworkError.as_str(), "NETWORK_ERROR");
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[doc = $meaning])+ $variant,)+
            /// The service was not reached, or its response did not arrive completely and in time.
            NetworkError,
            /// The settings of this client do not work: its URL, its key or its certificates.
            Configuration,
            /// An argument of the call is malformed, such as an id; [`details`](crate::Error::details) has its name as `argument`.
            InvalidArgument,
            /// A file or directory of this machine could not be read or written.
            LocalFile,
            /// A response that this version of the library does not understand; see [`Error::code_name`](crate::Error::code_name).
            Unknown,
        }

        impl From<ErrorCode> for Code {
            fn from(code: ErrorCode) -> Self {
                match code { $(ErrorCode::$variant => Self::$variant,)+ }
            }
        }

        impl Code {
            /// The code as it is written in error bodies.
            ///
            /// ```
            /// assert_eq!(sandboxd_client::Code::InvalidState.as_str(), "INVALID_STATE");
            /// ```
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => ErrorCode::$variant.as_str(),)+
                    Self::NetworkError => "NETWORK_ERROR",
                    Self::Configuration => "CLIENT_CONFIGURATION",
                    Self::InvalidArgument => "INVALID_ARGUMENT",
                    Self::LocalFile => "LOCAL_FILE",
                    Self::Unknown => "UNKNOWN",
                }
            }
        }
    };
}

codes! {
    /// The request is malformed.
    InvalidRequest,
    /// A value is outside its allowed range or set.
    InvalidConfig,
    /// The command is longer than 65,536 bytes.
    CommandTooLong,
    /// The API key is missing or invalid.
    Unauthorized,
    /// The key is valid but lacks the required scope.
    Forbidden,
    /// The sandbox does not permit the operation, even to its root user.
    PermissionDenied,
    /// The network policy of the sandbox does not allow exposing this port.
    PortNotAllowed,
    /// The sandbox does not exist or was terminated.
    SandboxNotFound,
    /// The path does not exist in the sandbox.
    FileNotFound,
    /// The port is not exposed.
    PortNotFound,
    /// The sandbox has no execution with this id, or the execution log has expired.
    ExecutionNotFound,
    /// The snapshot does not exist or was deleted.
    SnapshotNotFound,
    /// The template does not exist or was deleted.
    TemplateNotFound,
    /// The code interpreter has no such context.
    ContextNotFound,
    /// The URL path does not exist: the service is older than this library, or the URL is that of another server.
    NotFound,
    /// The URL path does not support this method.
    MethodNotAllowed,
    /// The time limit expired before the command could start.
    ExecutionTimeout,
    /// The state of the sandbox does not allow the operation.
    InvalidState,
    /// The isolation of the sandbox, or its release on this host, does not support the operation.
    IsolationMismatch,
    /// The path exists already.
    FileExists,
    /// The path is a directory, device, FIFO or socket.
    NotAFile,
    /// The path, or a part of it, is not a directory.
    NotADirectory,
    /// The directory is not empty.
    DirectoryNotEmpty,
    /// The image of the sandbox has no code interpreter.
    NoInterpreter,
    /// The execution has ended.
    ExecutionEnded,
    /// The standard input of the execution is closed or was never open.
    StdinClosed,
    /// The execution has no terminal.
    NotATerminal,
    /// Too many requests, creates or concurrent commands.
    RateLimited,
    /// The request exceeds a quota of the account.
    QuotaExceeded,
    /// The service failed unexpectedly.
    InternalError,
    /// The sandbox failed during a command or a file operation.
    ExecutionError,
    /// Nothing in the sandbox listens on the port, or the program's response is invalid or late.
    PortUnreachable,
    /// No capacity at the moment, or the image is still being pulled.
    ResourceExhausted,
    /// The sandbox's disk is full.
    DiskFull,
}

impl Code {
    pub(crate) fn of(text: &str) -> Self {
        text.parse::<ErrorCode>().map_or(Self::Unknown, Self::from)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
