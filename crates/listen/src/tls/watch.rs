//! Reloads the certificate: checks its files every second and at its expiry, and uses a new one. `serve` runs it for each HTTPS
//! listener. A failure is logged once for each change, and the old certificate stays in use.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::{Tls, TlsConfig, files, obtain, self_signed};

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// After a failure, unchanged files are tried again, and the error is logged again, after this time.
const RETRY_AFTER: Duration = Duration::from_secs(3600);

/// Files that could not be used, and the time.
type Refused = Option<(files::FileState, Instant)>;

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
    let known = refused.as_ref().is_some_and(|(files, when)| *files == seen && when.elapsed() < RETRY_AFTER);
    if known || (seen == current.seen && !due) {
        return refused;
    }
    match obtain(&tls.shared.config, now) {
        Ok(loaded) if loaded.certificate.not_after <= now && current.certificate.not_after > now => {
            tracing::error!(
                file = %certificate.display(),
                not_after = %loaded.certificate.not_after,
                "the new TLS certificate has expired; the old one stays in use"
            );
            Some((seen, Instant::now()))
        }
        Ok(loaded) => {
            tracing::info!(file = %certificate.display(), not_after = %loaded.certificate.not_after, "using a new TLS certificate");
            tls.replace(loaded);
            None
        }
        Err(error) => {
            tracing::error!(%error, "the new TLS certificate cannot be used; the old one stays in use");
            // The attempt may have changed the files.
            Some((files::FileState::of(&[&certificate, &key]), Instant::now()))
        }
    }
}

#[cfg(test)]
mod tests;
