//! The warning that clients of a terminal get before the timeout of its sandbox.

use api::{OnTimeout, SandboxId};

use crate::TimeMs;

/// How long before the end of the timeout.
const NOTICE_MS: u64 = 60_000;

/// When a client is warned of a timeout; `None` if it was warned of this one. A changed timeout is another one.
pub fn expiry_notice(expires_at: TimeMs, warned_of: Option<TimeMs>) -> Option<TimeMs> {
    (warned_of != Some(expires_at)).then(|| expires_at.before(NOTICE_MS))
}

/// What the client is told.
pub fn expiry_warning(sandbox: &SandboxId, on_timeout: OnTimeout, left_ms: u64) -> String {
    let ending = match on_timeout {
        OnTimeout::Terminate => "terminated",
        OnTimeout::Pause => "paused",
    };
    let seconds = left_ms.div_ceil(1000);
    format!(
        "sandbox '{sandbox}' will be {ending} in {seconds} s, when its timeout ends; set a longer timeout to keep it running"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_timeout_is_announced_once_a_minute_before() {
        let (first, extended) = (TimeMs(100_000), TimeMs(160_000));
        assert_eq!(expiry_notice(first, None), Some(TimeMs(40_000)));
        assert_eq!(expiry_notice(first, Some(first)), None);
        assert_eq!(expiry_notice(extended, Some(first)), Some(TimeMs(100_000)));
        // Of a sandbox that has less: at once.
        assert_eq!(expiry_notice(TimeMs(30_000), None), Some(TimeMs(0)));
    }

    #[test]
    fn the_warning_says_what_happens_and_when() {
        let sandbox: SandboxId = "sb_12345678".parse().unwrap();
        let warning = expiry_warning(&sandbox, OnTimeout::Terminate, 59_001);
        assert!(warning.starts_with("sandbox 'sb_12345678' will be terminated in 60 s"), "{warning}");
        assert!(expiry_warning(&sandbox, OnTimeout::Pause, 5).contains("will be paused in 1 s"));
    }
}
