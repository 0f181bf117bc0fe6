//! The errors that end the agent: at its start, or when `epoll` fails. Printed by `main`.

use std::convert::Infallible;

use guest_proto::TOKEN_LEN;
use rustix::io::Errno;

/// The result of a function that returns only on an error: the agent runs until it is killed.
pub type Never = Infallible;

/// Why the agent cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    #[error("usage: sandbox-agent --listen-fd N | --connect PATH, got: {0}")]
    Usage(String),
    #[error("no token of {TOKEN_LEN} bytes on stdin: {0}")]
    Token(Errno),
    #[error("cannot {step}: {errno}")]
    Step { step: &'static str, errno: Errno },
}

impl BootError {
    /// For `map_err`: the step that failed.
    pub fn step(step: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Step { step, errno }
    }
}
