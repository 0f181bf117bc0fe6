//! The public error of this crate. Cloneable, because callers share one pull.

/// Why an image is not available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    #[error("no image is named {name:?}; the catalogue has {}", known.join(", "))]
    UnknownName { name: String, known: Vec<String> },
    #[error(
        "image {name:?} has no source: name one under [images] in the configuration, such as {name:?} = [\"rootfs:/path/root.tar\"]"
    )]
    NoSource { name: String },
    #[error("image name {name:?} is not allowed: {reason}")]
    BadName { name: String, reason: String },
    #[error(
        "image source {text:?} is not understood: {reason}; allowed are REGISTRY/NAME:TAG (such as docker.io/library/ubuntu:24.04), \
         oci-layout:DIR[:TAG], rootfs:TAR, rootfs:DIR and debian:SUITE+PACKAGE+…"
    )]
    BadSource { text: String, reason: String },
    /// Every source was tried in order and failed.
    #[error("no source of image {name:?} worked: {}", failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AllFailed { name: String, failures: Vec<Failure> },
    /// The image directory on this host could not be used.
    #[error("image store: {what}: {reason}")]
    Store { what: String, reason: String },
}

impl ImageError {
    pub(crate) fn store(what: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Store { what: what.into(), reason: reason.to_string() }
    }
}

/// One source that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_text}: {reason}")]
pub struct Failure {
    /// The source as the catalogue writes it.
    pub source_text: String,
    pub kind: FailureKind,
    pub reason: String,
}

/// The kind of a failure, for decisions of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The registry, mirror or file could not be reached at all.
    Unreachable,
    /// The source responds, but has no such image.
    NotFound,
    /// The source requires credentials, or rejected them.
    Denied,
    /// The content has a wrong digest, is hostile, or has an unsupported form.
    Refused,
    /// The image exceeds the configured limits.
    TooBig,
    /// A program on this host is missing or failed.
    Tool,
    /// This host's disk or the transfer failed.
    Io,
}
