//! `GET /v1/sandboxes/{id}/files/list`: a page of a directory.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files/list", INSPECT)
        .describe(
            "listFiles",
            Tag::Files,
            "List a directory",
            "Sorted by name up to 10,000 entries. A larger directory is listed in the order of \
         the file system, which is stable while the directory does not change.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/"),
            Parameter::LIMIT.describe("Entries per page; default 20."),
            Parameter::OFFSET.describe("Entries to skip; default 0."),
            Parameter::AUTO_RESUME,
        ])
        .returns::<api::FileList>(StatusCode::OK, "A page.")
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::NotADirectory, "The path is not a directory"),
        ])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<api::FileList>, ApiError> {
    let request = FileRequest::find(&call).await?;
    let (offset, limit) = request.query.page()?;
    let work = request.begin(|query| Ok(FileOp::List { path: query.path("path")?, offset, limit })).await?;
    let dir = work.paths[0].clone();
    let listed = work.into_page(limit).await.map_err(|error| request.fault(error))?;
    let data =
        listed.entries.iter().map(|(name, info)| view::entry(&view::below(&dir, name), info)).collect();
    let pagination = api::Pagination::new(listed.total, limit, offset);
    Json::ok(&api::FileList { data, pagination })
}
