//! `POST /v1/sandboxes/{id}/files/mkdir`: creates a directory.

use admission::endpoint::{CHANGE, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/files/mkdir", CHANGE)
        .describe(
            "makeDirectory",
            Tag::Files,
            "Create a directory",
            "Creates a directory. Without `recursive` the parent must exist and the path must not.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/src/new"),
            Parameter::flag(
                "recursive",
                "Whether to create missing parents and accept an existing directory; default `false`.",
            ),
            Parameter::mode("The mode in octal; default 755.", "0755"),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .returns::<api::FileEntry>(StatusCode::OK, "The directory.")
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The parent directory does not exist"),
            (ErrorCode::FileExists, "The path exists already"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
            (ErrorCode::DiskFull, "The sandbox's disk is full"),
        ])
        .handler(mkdir)
}

async fn mkdir(call: Call) -> Result<Json<api::FileEntry>, ApiError> {
    let request = FileRequest::to("mkdir", &call).await?;
    let order = |query: &reader::FileQuery| {
        let (path, mode) = (query.path("path")?, query.mode()?);
        Ok(FileOp::MakeDir { path, mode, recursive: query.flag("recursive")? })
    };
    let begun = request.begin(order).await;
    let work = request.sandbox.touched(begun)?;
    let path = work.paths[0].clone();
    let info = work.info().await.map_err(|error| request.fault(error))?;
    request.record_created(&path, &info);
    Json::ok(&view::entry(&path, &info))
}
