//! Refusals that pass: errors with the status 429 or 503.
//!
//! [`ApiError::refused`] is the only way to one. Its caller names what refuses, a limit with its value and its configuration key or a
//! condition of the service, and when to try again. They are in the message, for people, and in the `details`, for programs:
//!
//! ```text
//! limit, value, key    a limit; without `key` the operator cannot change it
//! condition            anything else
//! retryAfter           seconds, as in the header `Retry-After`
//! ```

use std::fmt::Display;

use api::ErrorCode;
use axum::http::StatusCode;
use rules::ReachedLimit;

use super::ApiError;

/// A restart of the daemon takes a few seconds.
const STOPPING_RETRY_S: u64 = 5;

/// The codes of refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalCode {
    RateLimited,
    QuotaExceeded,
    ResourceExhausted,
}

impl From<RefusalCode> for ErrorCode {
    fn from(code: RefusalCode) -> Self {
        match code {
            RefusalCode::RateLimited => Self::RateLimited,
            RefusalCode::QuotaExceeded => Self::QuotaExceeded,
            RefusalCode::ResourceExhausted => Self::ResourceExhausted,
        }
    }
}

/// What refuses a request for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusedBy {
    Limit(ReachedLimit),
    Condition(Condition),
}

/// A condition that ends without a change of the request or of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// The daemon stops; usually another one starts.
    Stopping,
    /// The image is being pulled.
    ImagePull,
    /// No source of the image answers.
    ImageSource,
    /// The snapshot is being copied to this host.
    SnapshotCopy,
    /// The object store does not answer.
    ObjectStore,
    /// The kernel or a file system of the host has no more of something.
    HostResources,
    /// A limit of the code interpreter in the sandbox.
    CodeInterpreter,
}

impl Condition {
    #[cfg(test)]
    pub const ALL: [Self; 7] = [
        Self::Stopping,
        Self::ImagePull,
        Self::ImageSource,
        Self::SnapshotCopy,
        Self::ObjectStore,
        Self::HostResources,
        Self::CodeInterpreter,
    ];

    /// The name in `details`; docs/errors.md describes each.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::ImagePull => "image_pull",
            Self::ImageSource => "image_source",
            Self::SnapshotCopy => "snapshot_copy",
            Self::ObjectStore => "object_store",
            Self::HostResources => "host_resources",
            Self::CodeInterpreter => "code_interpreter",
        }
    }
}

impl From<ReachedLimit> for RefusedBy {
    fn from(limit: ReachedLimit) -> Self {
        Self::Limit(limit)
    }
}

impl From<Condition> for RefusedBy {
    fn from(condition: Condition) -> Self {
        Self::Condition(condition)
    }
}

impl ApiError {
    /// A refusal that passes. `why` does not name the limit.
    pub fn refused(
        code: RefusalCode,
        why: impl Display,
        by: impl Into<RefusedBy>,
        retry_after_s: u64,
    ) -> Self {
        let by = by.into();
        let message = match &by {
            RefusedBy::Limit(limit) => format!("{why}; {limit}; try again in {retry_after_s} s"),
            RefusedBy::Condition(_) => format!("{why}; try again in {retry_after_s} s"),
        };
        let error = Self::of_code(code.into(), message)
            .with_detail("retryAfter", retry_after_s)
            .retry_after(retry_after_s);
        match by {
            RefusedBy::Limit(ReachedLimit { value, counts, key }) => {
                let error = error.with_detail("limit", counts).with_detail("value", value);
                match key {
                    Some(key) => error.with_detail("key", key),
                    None => error,
                }
            }
            RefusedBy::Condition(condition) => error.with_detail("condition", condition.name()),
        }
    }

    /// The daemon stops. `why` says what that means for the request.
    pub fn stopping(why: impl Display) -> Self {
        Self::refused(RefusalCode::ResourceExhausted, why, Condition::Stopping, STOPPING_RETRY_S)
    }

    /// The error itself, or an internal one in place of a refusal that was made in another way and does not say when to try again.
    #[must_use]
    pub fn checked(self) -> Self {
        let status = self.status();
        if !is_refusal(status) || self.retry_after_s.is_some() {
            return self;
        }
        Self::internal(format!(
            "a response with the status {status} that does not say what refuses: {}",
            self.message
        ))
    }
}

/// Whether the status says that the request may be repeated later.
pub fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_is_in_the_message_and_in_the_details() {
        let limit = ReachedLimit::set_by_operator(10, "creates per minute", "limits.create_per_minute");
        let error = ApiError::refused(RefusalCode::RateLimited, "rate limit exceeded", limit, 41);
        assert_eq!(
            (error.status().as_u16(), error.code, error.retry_after_s),
            (429, ErrorCode::RateLimited, Some(41))
        );
        assert_eq!(
            error.message,
            "rate limit exceeded; the limit is 10 creates per minute (the operator sets limits.create_per_minute); try again in 41 s"
        );
        let details = json!({
            "limit": "creates per minute", "value": 10, "key": "limits.create_per_minute", "retryAfter": 41,
        });
        assert_eq!(serde_json::Value::Object(error.details), details);
    }

    #[test]
    fn a_fixed_limit_has_no_key_and_a_condition_no_limit() {
        let limit = ReachedLimit::fixed(16, "file operations at a time in a sandbox");
        let error = ApiError::refused(RefusalCode::RateLimited, "too many", limit, 1);
        assert!(!error.details.contains_key("key"));
        let error = ApiError::stopping("the daemon is stopping");
        assert_eq!(error.message, "the daemon is stopping; try again in 5 s");
        assert_eq!(
            serde_json::Value::Object(error.details),
            json!({ "condition": "stopping", "retryAfter": 5 })
        );
    }

    #[test]
    fn no_other_way_leads_to_a_refusal() {
        for code in [ErrorCode::RateLimited, ErrorCode::QuotaExceeded, ErrorCode::ResourceExhausted] {
            let error = ApiError::new(code, "too much");
            assert_eq!((error.code, error.status().as_u16()), (ErrorCode::InternalError, 500));
            assert!(error.cause_text().unwrap().contains("too much"));
        }
        let codes =
            ErrorCode::ALL.iter().filter(|code| StatusCode::from_u16(code.status()).is_ok_and(is_refusal));
        assert_eq!(codes.count(), 3);
        let error =
            ApiError::new(ErrorCode::InvalidRequest, "x").with_status(StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(error.checked().status(), StatusCode::INTERNAL_SERVER_ERROR);
        let error = ApiError::stopping("x").checked();
        assert_eq!(error.status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn every_condition_has_its_own_name() {
        let names: std::collections::BTreeSet<_> =
            Condition::ALL.iter().map(|condition| condition.name()).collect();
        assert_eq!(names.len(), Condition::ALL.len());
        let page = include_str!("../../../../docs/errors.md");
        assert!(
            names.iter().all(|name| page.contains(&format!("`{name}`"))),
            "docs/errors.md lacks one of {names:?}"
        );
    }
}
