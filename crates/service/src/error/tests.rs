use std::sync::Arc;

use api::ErrorCode;
use axum::http::StatusCode;
use engine::{AgentError, CapacityError, DaemonError, EngineError, ExecutionError, HostError, SandboxError};
use image::{FailureKind, ImageError, SourceFailure};
use rules::{Operation, OperationRefusal, TimeMs};
use serde_json::{Value, json};
use store::StoreError;

use super::*;

const ID: Option<&str> = Some("sb_aaaaaaaa");

fn row(error: EngineError, operation: OperationKind) -> (u16, &'static str, Option<u64>) {
    let error = of_engine(error, ID, operation);
    assert_eq!(error.details["sandboxId"], "sb_aaaaaaaa");
    (error.status().as_u16(), error.code.as_str(), error.retry_after_s)
}

#[test]
fn every_fault_of_the_engine_has_its_row() {
    let driver = || EngineError::backend("start: secret path");
    let refused = EngineError::Sandbox(SandboxError::Refused(OperationRefusal::InvalidState {
        state: api::SandboxState::Paused,
        operation: Operation::Pause,
        allowed: &[api::SandboxState::Running],
    }));
    assert_eq!(row(refused, OperationKind::Other), (409, "INVALID_STATE", None));
    assert_eq!(
        row(EngineError::Sandbox(SandboxError::NotFound { terminated: None }), OperationKind::Other),
        (404, "SANDBOX_NOT_FOUND", None)
    );
    assert_eq!(
        row(EngineError::Sandbox(SandboxError::Refused(OperationRefusal::NotFound)), OperationKind::Execute),
        (404, "SANDBOX_NOT_FOUND", None)
    );
    for holder in [None, ID.and_then(|id| id.parse().ok())] {
        let error = of_engine(
            EngineError::Sandbox(SandboxError::NameTaken { name: "web".to_owned(), holder: holder.clone() }),
            None,
            OperationKind::Other,
        );
        assert_eq!((error.status().as_u16(), error.code.as_str()), (409, "INVALID_STATE"));
        assert_eq!(error.details["field"], "name");
        assert_eq!(
            error.details.get("sandboxId").and_then(serde_json::Value::as_str),
            ID.filter(|_| holder.is_some())
        );
        assert_eq!(holder.is_some(), error.message.contains("sb_aaaaaaaa"), "{}", error.message);
    }
    let never = EngineError::Execution(ExecutionError::NeverStarted(rules::NeverStarted { timeout_ms: 5 }));
    assert_eq!(row(never, OperationKind::Execute), (408, "EXECUTION_TIMEOUT", None));
    assert_eq!(
        row(EngineError::Capacity(CapacityError::NoSlot(5)), OperationKind::Other),
        (503, "RESOURCE_EXHAUSTED", Some(10))
    );
    let quota = rules::Quotas { streams: Some(1), connections: Some(0), ..Default::default() };
    let streams = EngineError::Capacity(CapacityError::Quota(quota.stream(1).unwrap_err()));
    assert_eq!(row(streams, OperationKind::Other), (429, "QUOTA_EXCEEDED", Some(10)));
    let connections = EngineError::Capacity(CapacityError::Quota(quota.connect(0).unwrap_err()));
    assert_eq!(row(connections, OperationKind::Other), (429, "QUOTA_EXCEEDED", Some(1)));
    let short = rules::Shortage::Disk { free_mb: 1, needed_mb: 2 };
    let error = of_engine(EngineError::Capacity(CapacityError::Shortage(short)), ID, OperationKind::Other);
    assert_eq!((error.status().as_u16(), error.retry_after_s), (503, Some(10)));
    assert_eq!(error.details["key"], "capacity.reserve_disk_mb");
    assert_eq!(
        row(EngineError::Daemon(DaemonError::Stopping), OperationKind::Execute),
        (503, "RESOURCE_EXHAUSTED", Some(5))
    );
    let full = EngineError::Host(HostError::Exhausted { what: "disk", source: "no space left".into() });
    assert_eq!(row(full, OperationKind::Other), (503, "RESOURCE_EXHAUSTED", Some(10)));
    assert_eq!(row(driver(), OperationKind::Execute), (502, "EXECUTION_ERROR", None));
    assert_eq!(row(driver(), OperationKind::Other), (500, "INTERNAL_ERROR", None));
    assert_eq!(
        row(EngineError::agent("the agent closed the link"), OperationKind::Execute),
        (502, "EXECUTION_ERROR", None)
    );
    assert_eq!(
        row(EngineError::Host(HostError::Store(StoreError::Closed)), OperationKind::Execute),
        (500, "INTERNAL_ERROR", None)
    );
    assert_eq!(
        row(EngineError::Daemon(DaemonError::TaskLost), OperationKind::Other),
        (500, "INTERNAL_ERROR", None)
    );
    // What really happened is for the log.
    let error = of_engine(driver(), ID, OperationKind::Other);
    assert!(!error.message.contains("secret") && error.cause_text().unwrap().contains("secret"));
}

#[test]
fn every_fault_among_files_has_its_row() {
    use engine::{FileError, FileErrorKind as Kind};
    for (kind, expected) in [
        (Kind::NotFound, (404, "FILE_NOT_FOUND", None)),
        (Kind::Exists, (409, "FILE_EXISTS", None)),
        (Kind::NotAFile, (409, "NOT_A_FILE", None)),
        (Kind::NotADirectory, (409, "NOT_A_DIRECTORY", None)),
        (Kind::NotEmpty, (409, "DIRECTORY_NOT_EMPTY", None)),
        (Kind::Denied, (403, "PERMISSION_DENIED", None)),
        (Kind::DiskFull, (507, "DISK_FULL", None)),
        (Kind::Range, (416, "INVALID_REQUEST", None)),
        (Kind::Invalid, (400, "INVALID_REQUEST", None)),
        (Kind::Interrupted, (400, "INVALID_REQUEST", None)),
        (Kind::Failed, (502, "EXECUTION_ERROR", None)),
    ] {
        let fault = FileError { kind, message: "x".to_owned() };
        assert_eq!(row(EngineError::File(fault), OperationKind::Files), expected, "{kind:?}");
    }
    let busy = EngineError::Agent(AgentError::Busy { message: "too many".to_owned() });
    assert_eq!(row(busy, OperationKind::Files), (429, "RATE_LIMITED", Some(1)));
    assert_eq!(
        row(EngineError::Agent(AgentError::TooOld), OperationKind::Files),
        (409, "INVALID_STATE", None)
    );
    assert_eq!(row(EngineError::agent("secret"), OperationKind::Files), (502, "EXECUTION_ERROR", None));
}

#[test]
fn the_owner_sees_when_and_why_a_sandbox_was_terminated() {
    let error = not_found("sb_aaaaaaaa", Some((TimeMs(0), "timeout".to_owned())));
    let details = json!({"sandboxId": "sb_aaaaaaaa", "state": "terminated", "terminatedAt": "1970-01-01T00:00:00.000Z", "reason": "timeout"});
    assert_eq!(Value::Object(error.details), details);
    assert_eq!(
        error.message,
        "sandbox 'sb_aaaaaaaa' was terminated at 1970-01-01T00:00:00.000Z, reason 'timeout'"
    );
    assert_eq!(not_found("x\r\ny", None).message, r"sandbox 'x\r\ny' does not exist");
}

#[test]
fn image_errors_depend_on_whether_a_retry_can_help() {
    let failed = |kinds: &[FailureKind]| {
        let failure = |&kind| SourceFailure {
            source_text: "rootfs:/of/the/host".to_owned(),
            kind,
            reason: "b".to_owned(),
            source: None,
        };
        let error =
            ImageError::AllFailed { name: "x".to_owned(), failures: kinds.iter().map(failure).collect() };
        let error = of_image(error);
        assert!(
            error.message.starts_with("image 'x' is not available: ")
                && !error.message.contains("/of/the/host")
        );
        assert!(error.cause_text().unwrap().contains("/of/the/host"), "the operator finds it in the log");
        (error.code, error.retry_after_s)
    };
    use FailureKind::{
        Closed, Credentials, Denied, Io, NotFound, Refused, TooBig, TooSlow, Tool, Unreachable, Untrusted,
    };
    for temporary in [&[Unreachable][..], &[NotFound, Unreachable], &[Io, TooBig], &[Tool], &[TooSlow]] {
        assert_eq!(failed(temporary), (ErrorCode::ResourceExhausted, Some(30)), "{temporary:?}");
    }
    for lasting in [&[NotFound][..], &[NotFound, Denied], &[Refused], &[TooBig], &[Closed], &[Untrusted]] {
        assert_eq!(failed(lasting), (ErrorCode::InvalidConfig, None), "{lasting:?}");
    }
    // The operator has to mend it.
    for fault in [&[Credentials][..], &[NotFound, Credentials], &[Unreachable, Credentials]] {
        assert_eq!(failed(fault), (ErrorCode::InternalError, None), "{fault:?}");
    }
    let reached = rules::PullQuotaReached { allowed: 5, retry_after_s: 60 };
    let quota = of_image(ImageError::PullQuota { account: "one".to_owned(), reached });
    assert_eq!((quota.code, quota.retry_after_s), (ErrorCode::QuotaExceeded, Some(60)));
    assert_eq!(quota.details["key"], "images.pull_bytes_per_day");
    let many = of_image(ImageError::TooManyPulls { allowed: 16 });
    assert_eq!((many.code, many.retry_after_s), (ErrorCode::RateLimited, Some(10)));
    let store =
        of_image(ImageError::Store { what: "a".to_owned(), source: Arc::new(std::io::Error::other("b")) });
    assert_eq!((store.code, store.status()), (ErrorCode::InternalError, StatusCode::INTERNAL_SERVER_ERROR));
}
