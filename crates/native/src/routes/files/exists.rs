//! `GET /v1/sandboxes/{id}/files/exists`: whether a path exists.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::{EngineError, FileErrorKind, FileOp};

use super::FileRequest;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files/exists", INSPECT)
        .describe(
            "fileExists",
            Tag::Files,
            "Check whether a path exists",
            "Symbolic links are not followed: a dangling link counts as existing.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/notes.txt"),
            Parameter::AUTO_RESUME,
        ])
        .returns::<api::FileExists>(StatusCode::OK, "Whether the path exists.")
        .errors([
            (ErrorCode::PermissionDenied, "The sandbox denies the operation"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(exists)
}

async fn exists(call: Call) -> Result<Json<api::FileExists>, ApiError> {
    let request = FileRequest::find(&call).await?;
    let work = request.begin(|query| Ok(FileOp::Stat { path: query.path("path")?, follow: false })).await?;
    let exists = match work.info().await {
        Ok(_) => true,
        Err(EngineError::File(fault))
            if matches!(fault.kind, FileErrorKind::NotFound | FileErrorKind::NotADirectory) =>
        {
            false
        }
        Err(error) => return Err(request.fault(error)),
    };
    Json::ok(&api::FileExists { exists })
}
