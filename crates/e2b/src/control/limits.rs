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
