//! Classifies registry failures as temporary or final, and computes delays between attempts.

use std::time::Duration;

use super::http::HttpError;
use crate::error::FailureKind;
use crate::fault::Fault;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
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
pub(super) fn classify(what: &str, e: HttpError) -> (Verdict, Fault) {
    let (verdict, kind) = verdict(&e);
    (verdict, Fault::new(kind, what).caused_by(e))
}

pub(super) fn verdict(e: &HttpError) -> (Verdict, FailureKind) {
    match e {
        HttpError::Connection(_) | HttpError::Short { .. } => (Verdict::Retry, FailureKind::Io),
        HttpError::Timeout(_) => (Verdict::Final, FailureKind::Io),
        HttpError::Status { status, code } => by_status(status.as_u16(), code),
        HttpError::TooLarge(_) => (Verdict::Final, FailureKind::TooBig),
        HttpError::Malformed(_) => (Verdict::Final, FailureKind::Refused),
        HttpError::ForeignTokenServer { .. } => (Verdict::Final, FailureKind::Denied),
        HttpError::Closed(_) => (Verdict::Final, FailureKind::Closed),
    }
}

fn by_status(status: u16, code: &str) -> (Verdict, FailureKind) {
    match (status, code) {
        (429 | 500.., _) | (_, "TOOMANYREQUESTS") => (Verdict::Retry, FailureKind::Io),
        (401 | 403, _) | (_, "UNAUTHORIZED" | "DENIED") => (Verdict::Final, FailureKind::Denied),
        (404, _)
        | (_, "BLOB_UNKNOWN" | "MANIFEST_BLOB_UNKNOWN" | "MANIFEST_UNKNOWN" | "NAME_UNKNOWN" | "NOT_FOUND") => {
            (Verdict::Final, FailureKind::NotFound)
        }
        _ => (Verdict::Final, FailureKind::Io),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_retried() {
        use FailureKind::{Denied, Io, NotFound};
        for (status, code, expected) in [
            (503, "", (Verdict::Retry, Io)),
            (429, "", (Verdict::Retry, Io)),
            (400, "TOOMANYREQUESTS", (Verdict::Retry, Io)),
            (401, "UNAUTHORIZED", (Verdict::Final, Denied)),
            (403, "", (Verdict::Final, Denied)),
            (404, "", (Verdict::Final, NotFound)),
            (400, "NAME_UNKNOWN", (Verdict::Final, NotFound)),
            (416, "", (Verdict::Final, Io)),
        ] {
            assert_eq!(by_status(status, code), expected, "{status} {code}");
        }
    }
}
