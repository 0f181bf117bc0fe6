//! Errors of what admission limits: rates, quotas and capacity.

use std::fmt::Display;

use rules::QuotaExceeded;
use store::StoreError;

use super::refusal::RefusedBy;
use super::{ApiError, Condition, RefusalCode};
use crate::limiter::Refused;

/// Requests in flight end within seconds.
const MOMENTARY_RETRY_S: u64 = 1;
/// Capacity becomes free when a sandbox is paused or terminated.
const CAPACITY_RETRY_S: u64 = 10;

/// A quota is exceeded. Quotas of requests in flight become free within seconds, others when the owner frees resources.
pub fn of_quota(error: &QuotaExceeded) -> ApiError {
    let retry_after_s = if error.quota.is_momentary() { MOMENTARY_RETRY_S } else { CAPACITY_RETRY_S };
    ApiError::refused(RefusalCode::QuotaExceeded, error.why(), error.limit(), retry_after_s)
        .with_detail("quota", error.quota.key())
        .with_detail("used", error.used)
        .with_detail("requested", error.requested)
        .with_detail("allowed", error.allowed)
}

/// A rate limit is used up.
pub fn rate_limited(refused: &Refused) -> ApiError {
    let Refused { limit, retry_after_s, .. } = refused;
    ApiError::refused(RefusalCode::RateLimited, "rate limit exceeded", limit.clone(), *retry_after_s)
}

/// The host has no capacity for the request now.
pub fn exhausted(why: impl Display, by: impl Into<RefusedBy>) -> ApiError {
    ApiError::refused(RefusalCode::ResourceExhausted, why, by, CAPACITY_RETRY_S)
}

/// The database cannot grow.
pub fn no_disk_space(error: StoreError) -> ApiError {
    let why = "the host has no disk space left; terminate other sandboxes";
    exhausted(why, Condition::HostResources).with_cause(error)
}
