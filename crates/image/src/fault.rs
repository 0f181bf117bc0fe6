//! The internal error of this crate: a kind and a reason. [`crate::images`] converts it to a public
//! [`crate::SourceFailure`] with the source.

use std::error::Error;
use std::sync::Arc;

use crate::error::{FailureKind, SharedError, with_cause};

#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", with_cause(.reason, .source.as_ref()))]
pub(crate) struct Fault {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
    pub(crate) source: Option<SharedError>,
}

impl Fault {
    pub(crate) fn new(kind: FailureKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), source: None }
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
    pub(crate) fn io<E: Error + Send + Sync + 'static>(step: impl Into<String>) -> impl FnOnce(E) -> Self {
        let step = step.into();
        move |e| Self::new(FailureKind::Io, step).caused_by(e)
    }

    pub(crate) fn caused_by(self, cause: impl Error + Send + Sync + 'static) -> Self {
        Self { source: Some(Arc::new(cause)), ..self }
    }
}
