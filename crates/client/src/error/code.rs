//! The codes of errors, one variant each. A code that `api` gains does not compile until it is in the list here.

use std::fmt;

use api::ErrorCode;

macro_rules! codes {
    ($($(#[doc = $meaning:literal])+ $variant:ident,)+) => {
        /// What went wrong: one variant for each error of the service, and four of the library.
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
            /// The service was not reached, or its answer did not arrive in time or whole.
            NetworkError,
            /// The settings of this client do not work: its URL, its key, the certificate it is to trust.
            Configuration,
            /// A file or directory of this machine could not be read or written.
            LocalFile,
            /// An answer that this version of the library does not know; see [`Error::code_name`](crate::Error::code_name).
            Unknown,
        }

        impl From<ErrorCode> for Code {
            fn from(code: ErrorCode) -> Self {
                match code { $(ErrorCode::$variant => Self::$variant,)+ }
            }
        }

        impl Code {
            /// As bodies write it.
            ///
            /// ```
            /// assert_eq!(sandboxd_client::Code::InvalidState.as_str(), "INVALID_STATE");
            /// ```
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => ErrorCode::$variant.as_str(),)+
                    Self::NetworkError => "NETWORK_ERROR",
                    Self::Configuration => "CLIENT_CONFIGURATION",
                    Self::LocalFile => "LOCAL_FILE",
                    Self::Unknown => "UNKNOWN",
                }
            }
        }
    };
}

codes! {
    /// The request has the wrong form.
    InvalidRequest,
    /// A value is out of its range or set.
    InvalidConfig,
    /// The command is longer than 64 KB.
    CommandTooLong,
    /// The API key is missing or not valid.
    Unauthorized,
    /// The key is valid and lacks the scope for this.
    Forbidden,
    /// The sandbox does not permit it, not even to its root.
    PermissionDenied,
    /// The network policy of the sandbox does not let this port be exposed.
    PortNotAllowed,
    /// The sandbox does not exist or was terminated.
    SandboxNotFound,
    /// There is no file or directory at this path of the sandbox.
    FileNotFound,
    /// The port is not exposed.
    PortNotFound,
    /// The sandbox has no execution of this id, or it is not kept any more.
    ExecutionNotFound,
    /// There is nothing at this path: the service is older than this library, or the URL is another's.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The time of the command was used up before it could start.
    ExecutionTimeout,
    /// The sandbox is in a state that does not allow this.
    InvalidState,
    /// Something is at this path already.
    FileExists,
    /// It is a directory, a device, a fifo or a socket.
    NotAFile,
    /// It, or something on the way to it, is no directory.
    NotADirectory,
    /// The directory holds something.
    DirectoryNotEmpty,
    /// The execution has ended.
    ExecutionEnded,
    /// The execution's standard input is closed, or never was open.
    StdinClosed,
    /// The execution has no terminal.
    NotATerminal,
    /// Too many requests, creations or commands at once.
    RateLimited,
    /// An unexpected fault of the service.
    InternalError,
    /// The sandbox failed while it ran the command.
    ExecutionError,
    /// Nothing in the sandbox listens on the port, or what does gave no answer that can be passed on.
    PortUnreachable,
    /// No room at the moment, or the image is still being fetched.
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
