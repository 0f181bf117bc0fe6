//! Whether a call that failed may be sent again, and when. Pure: the transport brings what happened and a random number.

use std::time::Duration;

use crate::Code;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const GROWTH: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// What sending a call twice may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// Nothing that once would not have done: reading, terminating, and what carries an `Idempotency-Key` that is kept with
    /// its effect.
    Repeatable,
    /// A command under an `Idempotency-Key`: a second try waits for the first and gets its answer. But 500 and 502 are not
    /// kept, and the command may have run.
    Command,
    /// Harmless after an answer that says it failed; after a lost one the state may have changed twice meanwhile.
    AfterAnswer,
    /// Only where it certainly did not begin.
    OnlyUnstarted,
}

/// How a try failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// There was no connection to send it on.
    NotSent,
    /// Sent, perhaps in part, and not answered.
    Lost,
    /// What was to be sent could not be had.
    NoContent,
    Answered {
        status: u16,
        code: Code,
    },
}

/// How much is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub retries: u32,
    /// The longest wait that a service may ask for; past it the caller decides.
    pub patience: Duration,
}

/// Whether the call may be sent again after this.
pub fn may_repeat(safety: Safety, fault: Fault) -> bool {
    match fault {
        Fault::NotSent => true,
        Fault::NoContent => false,
        Fault::Lost => matches!(safety, Safety::Repeatable | Safety::Command),
        // Refused before anything was done.
        Fault::Answered { code: Code::RateLimited | Code::ResourceExhausted, .. } => true,
        // It does not empty itself.
        Fault::Answered { code: Code::DiskFull, .. } => false,
        Fault::Answered { status, .. } => {
            status >= 500 && matches!(safety, Safety::Repeatable | Safety::AfterAnswer)
        }
    }
}

/// How long to wait before try number `next` (the first repeat is 1); `None` to give up. `random` is from 0 to 1.
pub fn wait(policy: Policy, next: u32, retry_after: Option<Duration>, random: f64) -> Option<Duration> {
    if next > policy.retries {
        return None;
    }
    let grown = FIRST_WAIT.saturating_mul(GROWTH.saturating_pow(next - 1)).min(LONGEST_WAIT);
    // Half of it is by chance, so that clients that failed together do not come back together.
    let own = grown.mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0);
    match retry_after {
        Some(asked) if asked > policy.patience => None,
        Some(asked) => Some(asked + own / 4),
        None => Some(own),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { retries: 2, patience: Duration::from_secs(10) };

    fn answered(status: u16, code: Code) -> Fault {
        Fault::Answered { status, code }
    }

    #[test]
    fn only_what_is_safe_is_repeated() {
        use Safety::*;
        let all = [Repeatable, Command, AfterAnswer, OnlyUnstarted];
        for (fault, expected) in [
            (Fault::NotSent, [true, true, true, true]),
            (Fault::Lost, [true, true, false, false]),
            (Fault::NoContent, [false, false, false, false]),
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
    fn waits_grow_and_end() {
        let ms = |next, random| wait(POLICY, next, None, random).map(|wait| wait.as_millis());
        assert_eq!([ms(1, 0.0), ms(1, 1.0)], [Some(50), Some(100)]);
        assert_eq!([ms(2, 0.0), ms(2, 1.0)], [Some(200), Some(400)]);
        assert_eq!(ms(3, 0.5), None);
        let many = Policy { retries: u32::MAX, ..POLICY };
        assert_eq!(wait(many, 1000, None, 1.0), Some(LONGEST_WAIT));
        assert_eq!(wait(Policy { retries: 0, ..POLICY }, 1, None, 0.0), None);
    }

    #[test]
    fn what_the_service_asks_for_is_waited_for_within_patience() {
        let asked = Duration::from_secs(10);
        let waited = wait(POLICY, 1, Some(asked), 1.0).unwrap();
        assert!(waited >= asked && waited < asked + FIRST_WAIT);
        assert_eq!(wait(POLICY, 1, Some(asked + Duration::from_millis(1)), 1.0), None);
    }
}
