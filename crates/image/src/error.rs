//! The public error of this crate. Cloneable, because callers share one pull.

use std::error::Error;
use std::sync::Arc;

use rules::PullQuotaReached;

/// Limit of the characters of a cause in a message.
const CAUSE_CHARS: usize = 500;

pub(crate) type SharedError = Arc<dyn Error + Send + Sync>;

/// Why an image is not available.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ImageError {
    #[error("no image is named '{}'; the catalogue has {}", name.escape_debug(), known.join(", "))]
    UnknownName { name: String, known: Vec<String> },
    #[error(
        "image '{}' has no source: set one under [images] in the configuration, such as {name:?} = [\"rootfs:/path/root.tar\"]",
        name.escape_debug()
    )]
    NoSource { name: String },
    #[error("image name '{}' is not allowed: {reason}", name.escape_debug())]
    BadName { name: String, reason: String },
    #[error(
        "image source '{}' is invalid: {reason}; allowed: REGISTRY/NAME:TAG (such as docker.io/library/ubuntu:24.04), \
         oci-layout:DIR[:TAG], rootfs:TAR, rootfs:DIR and debian:SUITE+PACKAGE+…",
        text.escape_debug()
    )]
    BadSource { text: String, reason: String },
    /// The account that has caused the pull may not pull more today.
    #[error("account '{}' may not pull more: {}", account.escape_debug(), reached.limit())]
    PullQuota { account: String, reached: PullQuotaReached },
    /// The account has as many pulls as it may have.
    #[error("the account has {allowed} pulls already")]
    TooManyPulls { allowed: usize },
    /// Every source was tried in order and failed.
    #[error("no source of image '{}' worked: {}", name.escape_debug(), failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AllFailed { name: String, failures: Vec<SourceFailure> },
    /// The image directory on this host could not be used.
    #[error("image store: {what}: {source}")]
    Store { what: String, source: Arc<dyn Error + Send + Sync> },
}

impl ImageError {
    pub(crate) fn store(what: impl Into<String>, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Store { what: what.into(), source: Arc::from(cause.into()) }
    }
}

/// One source that failed, and why.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{source_text}: {}", with_cause(.reason, .source.as_ref()))]
pub struct SourceFailure {
    /// The source as the catalogue writes it.
    pub source_text: String,
    pub kind: FailureKind,
    /// Without the text of the cause.
    pub reason: String,
    pub source: Option<Arc<dyn Error + Send + Sync>>,
}

/// A reason with the cause and its sources.
pub(crate) fn with_cause(reason: &str, cause: Option<&SharedError>) -> String {
    match cause {
        Some(cause) => format!("{reason}: {}", chain(cause)),
        None => reason.to_owned(),
    }
}

/// An error and its causes as one line of bounded length, because the text may come from a hostile server.
pub(crate) fn chain(e: &dyn Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.ends_with(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(CAUSE_CHARS).map(plain).collect()
}

/// The kind of a failure, for decisions of callers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The registry, mirror or file could not be reached at all.
    Unreachable,
    /// The certificate of the source is not trusted on this host, or is not valid.
    Untrusted,
    /// The source responds, but has no such image.
    NotFound,
    /// The source requires credentials, or rejected them.
    Denied,
    /// The operator's file of logins cannot be used.
    Credentials,
    /// A client has named a registry whose address is not public.
    Closed,
    /// The content has a wrong digest, is hostile, or has an unsupported form.
    Refused,
    /// The image exceeds the configured limits.
    TooBig,
    /// The pull took longer than a client's may take.
    TooSlow,
    /// A program on this host is missing or failed.
    Tool,
    /// This host's disk or the transfer failed.
    Io,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_its_cause_as_source_and_in_its_text() {
        let cause = std::io::Error::other("no space\nleft");
        let failure = SourceFailure {
            source_text: "rootfs:/x".to_owned(),
            kind: FailureKind::Io,
            reason: "write a blob".to_owned(),
            source: Some(Arc::new(cause)),
        };
        assert_eq!(failure.to_string(), "rootfs:/x: write a blob: no space left");
        assert_eq!(Error::source(&failure).unwrap().to_string(), "no space\nleft");
    }
}
