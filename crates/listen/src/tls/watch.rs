//! Reloads the certificate: checks its files every second and at its expiry, and uses a new one. `serve` runs it for each HTTPS
//! listener. A failure is a warning first, because a renewal that copies certificate and key one after the other passes through a state in
//! which they do not fit, and an error if it lasts. The old certificate stays in use.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Tls, TlsConfig, files, obtain, self_signed};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failure, unchanged files are tried again, and the error is logged again, after this time.
const RETRY_AFTER: Duration = Duration::from_secs(3600);

/// How long the copies of a renewal may take.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Files that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RefusedFiles {
    files: files::FileState,
    /// The last attempt.
    when: Instant,
    /// Whether more of a renewal may come. Then the failure is not an error yet.
    may_settle: bool,
}

type Refused = Option<RefusedFiles>;

impl RefusedFiles {
    fn is_tried_again(&self) -> bool {
        self.when.elapsed() >= if self.may_settle { SETTLE_TIME } else { RETRY_AFTER }
    }
}

/// Runs until `stop` is cancelled.
pub(crate) async fn watch(tls: Tls, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut refused: Refused = None;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let looked = tls.clone();
        let before = refused.clone();
        // A disk may hang, so the files are not read on an async worker.
        let Ok(after) = tokio::task::spawn_blocking(move || check(&looked, before)).await else { return };
        refused = after;
    }
}

/// Checks once. Takes and returns the files that could not be used, so that each failure is logged once.
fn check(tls: &Tls, refused: Refused) -> Refused {
    let now = (tls.shared.now)();
    let current = tls.current();
    let (certificate, key) = match &tls.shared.config {
        TlsConfig::Own { certificate, key } => (certificate.clone(), key.clone()),
        TlsConfig::SelfSigned(own) => self_signed::paths(own),
    };
    let seen = files::FileState::of(&[&certificate, &key]);
    let due = matches!(tls.shared.config, TlsConfig::SelfSigned(_))
        && current.certificate.not_after - now < self_signed::RENEW;
    let same = refused.as_ref().filter(|refused| refused.files == seen);
    // A change may be the next step of a renewal.
    let may_settle = same.is_none();
    if same.is_some_and(|refused| !refused.is_tried_again()) || (seen == current.seen && !due) {
        return refused;
    }
    match obtain(&tls.shared.config, now) {
        Ok(loaded) if loaded.certificate.not_after <= now && current.certificate.not_after > now => {
            tracing::error!(
                file = %certificate.display(),
                not_after = %loaded.certificate.not_after,
                "the new TLS certificate has expired; the old one stays in use"
            );
            Some(RefusedFiles { files: seen, when: Instant::now(), may_settle: false })
        }
        Ok(loaded) => {
            tracing::info!(file = %certificate.display(), not_after = %loaded.certificate.not_after, "using a new TLS certificate");
            tls.replace(loaded);
            None
        }
        Err(error) => {
            if may_settle {
                tracing::warn!(%error, "the new TLS certificate cannot be used yet; the old one stays in use, and changed files are read again");
            } else {
                tracing::error!(%error, "the new TLS certificate cannot be used; the old one stays in use");
            }
            // The attempt may have changed the files.
            let files = files::FileState::of(&[&certificate, &key]);
            Some(RefusedFiles { files, when: Instant::now(), may_settle })
        }
    }
}

#[cfg(test)]
mod tests;
