//! The bounds of what a create or a build may ask for.

use rules::{ConfigRules, IsolationRules, Range};

use crate::error::E2bError;

/// Milliseconds of a timeout in seconds. A timeout of 0 ends the sandbox at once.
pub fn timeout_ms(seconds: i64) -> Result<u64, E2bError> {
    let allowed = api::bounds::TIMEOUT_MS;
    let ms = u64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
    ms.filter(|ms| *ms <= allowed.max).ok_or_else(|| {
        E2bError::invalid(format!("timeout is {seconds}; allowed: 0 to {} seconds", allowed.max / 1000))
    })
}

/// The operator chooses the resources of templates, and checks them at the start.
pub fn rules_for_templates(isolation: IsolationRules) -> ConfigRules {
    let rules = ConfigRules::default();
    ConfigRules {
        cpu_allowed: (1..=64).collect(),
        memory_mb: Range { min: 128, max: u32::MAX, ..rules.memory_mb },
        disk_mb: Range { min: 512, max: u32::MAX, ..rules.disk_mb },
        isolation,
        ..rules
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_in_seconds_is_bounded_and_does_not_overflow() {
        for (seconds, ms) in [(0, Some(0)), (1, Some(1000)), (86_400, Some(86_400_000)), (86_401, None)] {
            assert_eq!(timeout_ms(seconds).ok(), ms, "{seconds}");
        }
        for seconds in [-1, i64::MIN, i64::MAX] {
            let error = timeout_ms(seconds).unwrap_err();
            assert_eq!(error.status.as_u16(), 400);
            assert_eq!(error.message, format!("timeout is {seconds}; allowed: 0 to 86400 seconds"));
        }
    }
}
