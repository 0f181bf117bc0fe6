//! Which keys a list shows.

use crate::TimeMs;

/// Keys that ended earlier are shown on request only.
const SHOWN_AFTER_END_MS: u64 = 7 * 24 * 3_600_000;

/// When a key ended: it was revoked or it expired, whichever came first. `None` if it is valid at `now`.
pub fn key_end(revoked_at: Option<TimeMs>, expires_at: Option<TimeMs>, now: TimeMs) -> Option<TimeMs> {
    let expired_at = expires_at.filter(|at| *at <= now);
    revoked_at.into_iter().chain(expired_at).min()
}

/// Whether a list shows a key without being asked for all keys. `end` is its [`key_end`].
pub fn is_key_listed(end: Option<TimeMs>, now: TimeMs) -> bool {
    end.is_none_or(|end| now.since(end) <= SHOWN_AFTER_END_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_when_it_is_revoked_or_expires() {
        let now = TimeMs(1000);
        let (earlier, later) = (Some(TimeMs(400)), Some(TimeMs(1001)));
        for (revoked, expires, end) in [
            (None, None, None),
            (None, later, None),
            (None, Some(now), Some(now)),
            (Some(now), later, Some(now)),
            (Some(now), earlier, earlier),
            (earlier, Some(now), earlier),
        ] {
            assert_eq!(key_end(revoked, expires, now), end, "{revoked:?} {expires:?}");
        }
    }

    #[test]
    fn keys_that_ended_a_week_ago_are_hidden() {
        let end = TimeMs(1000);
        assert!(is_key_listed(None, end));
        assert!(is_key_listed(Some(end), end.after(SHOWN_AFTER_END_MS)));
        assert!(!is_key_listed(Some(end), end.after(SHOWN_AFTER_END_MS + 1)));
        // The clock was set back.
        assert!(is_key_listed(Some(end), TimeMs(0)));
    }
}
