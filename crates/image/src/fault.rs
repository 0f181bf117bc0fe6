//! The internal error of this crate: a kind and a reason. [`crate::images`] converts it to a public
//! [`crate::Failure`] with the source.

use crate::error::FailureKind;

#[derive(Debug, Clone, thiserror::Error)]
#[error("{reason}")]
pub(crate) struct Fault {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        Self::new(FailureKind::Refused, reason)
    }

    pub(crate) fn too_big(reason: impl Into<String>) -> Self {
        Self::new(FailureKind::TooBig, reason)
    }

    pub(crate) fn tool(reason: impl Into<String>) -> Self {
        Self::new(FailureKind::Tool, reason)
    }

    /// For `map_err`: an I/O error with the step that failed.
    pub(crate) fn io<E: std::fmt::Display>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |e| Self::new(FailureKind::Io, format!("{step}: {e}"))
    }
}
