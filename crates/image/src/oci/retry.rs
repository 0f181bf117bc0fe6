//! Classifies registry failures as temporary or final, and computes delays between attempts.

use std::time::Duration;

use oci_client::errors::{OciDistributionError as OciError, OciErrorCode};

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

/// Classifies an error of the registry client.
pub(super) fn classify(what: &str, e: OciError) -> (Verdict, Fault) {
    let (verdict, kind) = verdict(&e);
    (verdict, Fault::new(kind, what).caused_by(e))
}

pub(super) fn verdict(e: &OciError) -> (Verdict, FailureKind) {
    match e {
        OciError::RequestError(_) | OciError::IoError(_) => (Verdict::Retry, FailureKind::Io),
        OciError::ServerError { code, .. } => match code {
            429 | 500.. => (Verdict::Retry, FailureKind::Io),
            404 => (Verdict::Final, FailureKind::NotFound),
            401 | 403 => (Verdict::Final, FailureKind::Denied),
            _ => (Verdict::Final, FailureKind::Io),
        },
        OciError::RegistryError { envelope, .. } => by_code(envelope.errors.first().map(|error| &error.code)),
        OciError::UnauthorizedError { .. } | OciError::AuthenticationFailure(_) => {
            (Verdict::Final, FailureKind::Denied)
        }
        OciError::ImageManifestNotFoundError(_) => (Verdict::Final, FailureKind::NotFound),
        _ => (Verdict::Final, FailureKind::Refused),
    }
}

fn by_code(code: Option<&OciErrorCode>) -> (Verdict, FailureKind) {
    match code {
        Some(OciErrorCode::Toomanyrequests) => (Verdict::Retry, FailureKind::Io),
        Some(OciErrorCode::Unauthorized | OciErrorCode::Denied) => (Verdict::Final, FailureKind::Denied),
        Some(
            OciErrorCode::BlobUnknown
            | OciErrorCode::ManifestBlobUnknown
            | OciErrorCode::ManifestUnknown
            | OciErrorCode::NameUnknown
            | OciErrorCode::NotFound,
        ) => (Verdict::Final, FailureKind::NotFound),
        _ => (Verdict::Final, FailureKind::Io),
    }
}
