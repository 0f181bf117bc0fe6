//! `GET /v1/sandboxes/{id}/files/exists`: whether something is at a path.

use api::ErrorCode;

use axum::http::StatusCode;
use engine::{EngineError, FileErrorKind, FileOp};

use super::Asked;
use crate::endpoint::{Call, Endpoint, Json, Parameter, READ, Tag};
use crate::error::ApiError;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files/exists", READ)
        .describe("fileExists", Tag::Files, "Check whether a path exists", "A dangling symbolic link exists.")
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
    let Call { service, caller, parts, .. } = call;
    let asked = Asked::new(service, &caller, &parts.uri).await?;
    let work = asked.begin(|query| Ok(FileOp::Stat { path: query.path("path")?, follow: false })).await?;
    let exists = match work.info().await {
        Ok(_) => true,
        Err(EngineError::File(fault))
            if matches!(fault.kind, FileErrorKind::NotFound | FileErrorKind::NotADirectory) =>
        {
            false
        }
        Err(error) => return Err(asked.fault(error)),
    };
    Json::ok(&api::FileExists { exists })
}
