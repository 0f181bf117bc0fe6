//! Waiting while the service refuses a call because of a limit, such as a rate limit: for as long as it asks, up to a total. These waits
//! are not retries, because the refused call had no effect and the end of the limit is known.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Code, Error};

/// Added at random, so that clients that were refused together do not come back together.
const JITTER: Duration = Duration::from_millis(250);

/// How long calls wait, and who hears of it.
#[derive(Debug, Clone, Default)]
pub struct LimitWaits {
    pub longest: Duration,
    pub on_wait: Option<OnWait>,
}

type Callback = dyn Fn(&Error, Duration) + Send + Sync;

/// A function that hears of each wait.
#[derive(Clone)]
pub struct OnWait(Arc<Callback>);

impl OnWait {
    pub fn new(on_wait: impl Fn(&Error, Duration) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_wait))
    }
}

impl fmt::Debug for OnWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWait")
    }
}

impl LimitWaits {
    /// The delay before the next attempt of a call that has waited for limits already; `None` if it is not to wait for this error. `random` is
    /// between 0 and 1.
    pub fn next(&self, error: &Error, waited: Duration, random: f64) -> Option<Duration> {
        let is_limit = matches!(error.code(), Code::RateLimited | Code::ResourceExhausted);
        let requested = error.retry_after().filter(|_| is_limit)?;
        let jitter = JITTER.mul_f64(random.clamp(0.0, 1.0));
        // The service may ask for any time.
        (waited.saturating_add(requested) <= self.longest).then(|| requested.saturating_add(jitter))
    }

    pub fn report(&self, error: &Error, pause: Duration) {
        if let Some(OnWait(on_wait)) = &self.on_wait {
            on_wait(error, pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_for_limits_up_to_a_total() {
        let seconds = Duration::from_secs;
        let refused = |code: &str, retry_after| {
            let body = format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
            Error::of_answer(429, body.as_bytes(), None, retry_after)
        };
        let waits = LimitWaits { longest: seconds(60), on_wait: None };
        let limited = refused("RATE_LIMITED", Some(seconds(40)));
        assert_eq!(waits.next(&limited, seconds(20), 0.0), Some(seconds(40)));
        assert_eq!(waits.next(&limited, seconds(20), 1.0), Some(seconds(40) + JITTER));
        assert_eq!(waits.next(&limited, seconds(21), 0.0), None);
        assert_eq!(
            waits.next(&refused("RESOURCE_EXHAUSTED", Some(seconds(1))), seconds(0), 0.0),
            Some(seconds(1))
        );
        let endless = refused("RATE_LIMITED", Some(Duration::MAX));
        assert_eq!(waits.next(&endless, seconds(1), 1.0), None);
        assert_eq!(waits.next(&refused("RATE_LIMITED", None), seconds(0), 0.0), None);
        assert_eq!(waits.next(&refused("QUOTA_EXCEEDED", Some(seconds(1))), seconds(0), 0.0), None);
        assert_eq!(LimitWaits::default().next(&limited, seconds(0), 0.0), None);
    }
}
