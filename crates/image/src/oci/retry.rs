//! Classifies registry failures as temporary or final, and computes delays between attempts.

use std::time::Duration;

use super::http::HttpError;
use crate::error::FailureKind;
use crate::fault::Fault;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryVerdict {
    Retry,
    Final,
}

const MAX_WAIT: Duration = Duration::from_secs(10);

/// The delay after `attempts` failed attempts: doubles, with jitter of up to a half, so that hosts do not retry at
/// the same time.
pub(super) fn back_off(first: Duration, attempts: u32) -> Duration {
    let wait = first.saturating_mul(1 << attempts.saturating_sub(1).min(10)).min(MAX_WAIT);
    // The low digits of the clock are random enough for jitter.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    wait + wait / 2 * (now.subsec_nanos() % 1_000) / 1_000
}

/// Classifies the failure of a request.
pub(super) fn classify(what: &str, e: HttpError) -> (RetryVerdict, Fault) {
    let (verdict, kind) = verdict(&e);
    (verdict, Fault::new(kind, what).caused_by(e))
}

pub(super) fn verdict(e: &HttpError) -> (RetryVerdict, FailureKind) {
    match e {
        HttpError::Connection(_) | HttpError::Short { .. } => (RetryVerdict::Retry, FailureKind::Io),
        HttpError::Timeout(_) => (RetryVerdict::Final, FailureKind::Io),
        HttpError::Status { status, code } => by_status(status.as_u16(), code),
        HttpError::TooLarge(_) => (RetryVerdict::Final, FailureKind::TooBig),
        HttpError::Malformed(_) => (RetryVerdict::Final, FailureKind::Refused),
        HttpError::ForeignTokenServer { .. } => (RetryVerdict::Final, FailureKind::Denied),
        HttpError::Closed(_) => (RetryVerdict::Final, FailureKind::Closed),
        HttpError::Untrusted(_) => (RetryVerdict::Final, FailureKind::Untrusted),
    }
}

fn by_status(status: u16, code: &str) -> (RetryVerdict, FailureKind) {
    match (status, code) {
        (429 | 500.., _) | (_, "TOOMANYREQUESTS") => (RetryVerdict::Retry, FailureKind::Io),
        (401 | 403, _) | (_, "UNAUTHORIZED" | "DENIED") => (RetryVerdict::Final, FailureKind::Denied),
        (404, _)
        | (_, "BLOB_UNKNOWN" | "MANIFEST_BLOB_UNKNOWN" | "MANIFEST_UNKNOWN" | "NAME_UNKNOWN" | "NOT_FOUND") => {
            (RetryVerdict::Final, FailureKind::NotFound)
        }
        _ => (RetryVerdict::Final, FailureKind::Io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_retried() {
        use FailureKind::{Denied, Io, NotFound};
        for (status, code, expected) in [
            (503, "", (RetryVerdict::Retry, Io)),
            (429, "", (RetryVerdict::Retry, Io)),
            (400, "TOOMANYREQUESTS", (RetryVerdict::Retry, Io)),
            (401, "UNAUTHORIZED", (RetryVerdict::Final, Denied)),
            (403, "", (RetryVerdict::Final, Denied)),
            (404, "", (RetryVerdict::Final, NotFound)),
            (400, "NAME_UNKNOWN", (RetryVerdict::Final, NotFound)),
            (416, "", (RetryVerdict::Final, Io)),
        ] {
            assert_eq!(by_status(status, code), expected, "{status} {code}");
        }
    }
}
