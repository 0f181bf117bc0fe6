//! Retry rules: whether and when a failed call is retried. Pure functions; the transport passes the fault and a random number.

use std::time::Duration;

use crate::Code;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const GROWTH: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What a second attempt may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// Nothing beyond the first: reads, terminating, and requests whose `Idempotency-Key` is stored together with their effect.
    Repeatable,
    /// A command with an `Idempotency-Key`: a retry waits for the first attempt and returns its result. But responses 500 and 502 are not
    /// stored, and the command may have run.
    Command,
    /// Safe after an error response; after a lost response the state may have changed meanwhile.
    AfterAnswer,
    /// Safe only if the first attempt did not start.
    OnlyUnstarted,
}

/// How an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No connection was established.
    NotSent,
    /// Sent, perhaps partially, without a response.
    Lost,
    /// The source of the body failed.
    NoContent,
    Answered {
        status: u16,
        code: Code,
    },
    /// The service started the command and killed it, because there was no memory for its output.
    Killed,
}

/// Limits of retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub retries: u32,
    /// The longest `Retry-After` to wait for; beyond it the caller gets the error.
    pub max_retry_wait: Duration,
}

/// Whether the call may be retried.
pub fn may_repeat(safety: Safety, fault: Fault) -> bool {
    match fault {
        Fault::NotSent => true,
        Fault::NoContent | Fault::Killed => false,
        Fault::Lost => matches!(safety, Safety::Repeatable | Safety::Command),
        // Rejected before it had any effect.
        Fault::Answered { code: Code::RateLimited | Code::ResourceExhausted, .. } => true,
        // A full disk stays full.
        Fault::Answered { code: Code::DiskFull, .. } => false,
        Fault::Answered { status, .. } => {
            status >= 500 && matches!(safety, Safety::Repeatable | Safety::AfterAnswer)
        }
    }
}

/// The delay before retry number `next`, starting with 1; `None` to give up. `random` is between 0 and 1.
pub fn wait(policy: Policy, next: u32, retry_after: Option<Duration>, random: f64) -> Option<Duration> {
    if next > policy.retries {
        return None;
    }
    let grown = FIRST_WAIT.saturating_mul(GROWTH.saturating_pow(next - 1)).min(LONGEST_WAIT);
    // Jitter, so that clients that failed together do not retry together.
    let own = grown.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0);
    match retry_after {
        Some(requested) if requested > policy.max_retry_wait => None,
        Some(requested) => Some(requested + own / 4),
        None => Some(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { retries: 2, max_retry_wait: Duration::from_secs(10) };

    fn answered(status: u16, code: Code) -> Fault {
        Fault::Answered { status, code }
    }

    #[test]
    fn only_safe_requests_are_retried() {
        use Safety::*;
        let all = [Repeatable, Command, AfterAnswer, OnlyUnstarted];
        for (fault, expected) in [
            (Fault::NotSent, [true, true, true, true]),
            (Fault::Lost, [true, true, false, false]),
            (Fault::NoContent, [false, false, false, false]),
            (Fault::Killed, [false, false, false, false]),
            (answered(500, Code::InternalError), [true, false, true, false]),
            (answered(502, Code::ExecutionError), [true, false, true, false]),
            (answered(502, Code::Unknown), [true, false, true, false]),
            (answered(503, Code::ResourceExhausted), [true, true, true, true]),
            (answered(429, Code::RateLimited), [true, true, true, true]),
            (answered(507, Code::DiskFull), [false, false, false, false]),
            (answered(404, Code::SandboxNotFound), [false, false, false, false]),
            (answered(408, Code::ExecutionTimeout), [false, false, false, false]),
            (answered(409, Code::InvalidState), [false, false, false, false]),
        ] {
            assert_eq!(all.map(|safety| may_repeat(safety, fault)), expected, "{fault:?}");
        }
    }

    #[test]
    fn backoff_grows_and_is_bounded() {
        let ms = |next, random| wait(POLICY, next, None, random).map(|wait| wait.as_millis());
        assert_eq!([ms(1, 0.0), ms(1, 1.0)], [Some(50), Some(100)]);
        assert_eq!([ms(2, 0.0), ms(2, 1.0)], [Some(200), Some(400)]);
        assert_eq!(ms(3, 0.5), None);
        let many = Policy { retries: u32::MAX, ..POLICY };
        assert_eq!(wait(many, 1000, None, 1.0), Some(LONGEST_WAIT));
        assert_eq!(wait(Policy { retries: 0, ..POLICY }, 1, None, 0.0), None);
    }

    #[test]
    fn retry_after_is_respected_within_the_retry_budget() {
        let requested = Duration::from_secs(10);
        let waited = wait(POLICY, 1, Some(requested), 1.0).unwrap();
        assert!(waited >= requested && waited < requested + FIRST_WAIT);
        assert_eq!(wait(POLICY, 1, Some(requested + Duration::from_millis(1)), 1.0), None);
    }
}
