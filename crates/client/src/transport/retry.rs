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
pub enum AttemptFault {
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
pub fn may_repeat(safety: Safety, fault: AttemptFault) -> bool {
    match fault {
        AttemptFault::NotSent => true,
        AttemptFault::NoContent | AttemptFault::Killed => false,
        AttemptFault::Lost => matches!(safety, Safety::Repeatable | Safety::Command),
        // Rejected before it had any effect.
        AttemptFault::Answered { code: Code::RateLimited | Code::ResourceExhausted, .. } => true,
        // A full disk stays full.
        AttemptFault::Answered { code: Code::DiskFull, .. } => false,
        AttemptFault::Answered { status, .. } => {
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
    use serde::Deserialize;

    use super::*;
    use crate::cases;

    #[derive(Debug, Clone, Copy, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum SafetyName {
        Repeatable,
        Command,
        AfterAnswer,
        OnlyUnstarted,
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case")]
    enum FaultCase {
        NotSent,
        Lost,
        NoContent,
        Killed,
        Answered { status: u16, code: String },
    }

    #[derive(Debug, Deserialize)]
    struct RetryCase {
        safety: SafetyName,
        fault: FaultCase,
        retry: bool,
    }

    #[test]
    fn only_safe_requests_are_retried() {
        for case in cases::of::<RetryCase>(include_str!("../../../../sdk/cases/retry.json")) {
            let safety = match case.safety {
                SafetyName::Repeatable => Safety::Repeatable,
                SafetyName::Command => Safety::Command,
                SafetyName::AfterAnswer => Safety::AfterAnswer,
                SafetyName::OnlyUnstarted => Safety::OnlyUnstarted,
            };
            let fault = match &case.fault {
                FaultCase::NotSent => AttemptFault::NotSent,
                FaultCase::Lost => AttemptFault::Lost,
                FaultCase::NoContent => AttemptFault::NoContent,
                FaultCase::Killed => AttemptFault::Killed,
                FaultCase::Answered { status, code } => {
                    AttemptFault::Answered { status: *status, code: Code::of(code) }
                }
            };
            assert_eq!(may_repeat(safety, fault), case.retry, "{case:?}");
        }
    }

    #[derive(Debug, Deserialize)]
    struct WaitCase {
        retries: u32,
        max_retry_wait_ms: u64,
        next: u32,
        retry_after_ms: Option<u64>,
        random: f64,
        wait_ms: Option<f64>,
    }

    #[test]
    fn waits_grow_are_bounded_and_respect_retry_after() {
        for case in cases::of::<WaitCase>(include_str!("../../../../sdk/cases/wait.json")) {
            let max_retry_wait = Duration::from_millis(case.max_retry_wait_ms);
            let policy = Policy { retries: case.retries, max_retry_wait };
            let retry_after = case.retry_after_ms.map(Duration::from_millis);
            let waited = wait(policy, case.next, retry_after, case.random);
            let expected = case.wait_ms.map(|ms| Duration::from_secs_f64(ms / 1000.0));
            assert_eq!(waited, expected, "{case:?}");
        }
    }
}
