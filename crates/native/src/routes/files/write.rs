//! `PUT /v1/sandboxes/{id}/files`: replaces a file with the body.

use admission::endpoint::{CHANGE, Json, Parameter, RawBody, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, upload, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::put("/v1/sandboxes/{id}/files", CHANGE)
        .describe(
            "writeFile",
            Tag::Files,
            "Write a file",
            "The body is the content, of any size and type. It replaces the file atomically when \
         it is complete; an incomplete upload changes nothing. A replaced file keeps its \
         owner, and its mode unless `mode` is given. Symbolic links are followed.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::named_path("path", "/workspace/notes.txt"),
            Parameter::mode("The mode in octal; default 644 for a new file.", "0644"),
            Parameter::flag("parents", "Whether to create missing parent directories; default `false`."),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .raw_body("application/octet-stream", false, "The content. Without a body the file is empty.")
        .returns::<api::FileEntry>(StatusCode::OK, "The file.")
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::InvalidRequest, "The request is malformed, or its body was incomplete"),
            (ErrorCode::FileNotFound, "The parent directory does not exist"),
            (ErrorCode::NotAFile, "The path is a directory, a device, a FIFO or a socket"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
            (ErrorCode::DiskFull, "The sandbox's disk is full"),
        ])
        .handler(write)
}

async fn write(call: Call<Caller, RawBody>) -> Result<Json<api::FileEntry>, ApiError> {
    let (call, RawBody(body)) = call.split_body();
    let request = FileRequest::to("write", &call).await?;
    request.sandbox.touched(upload::check(&call.parts.headers))?;
    let order = |query: &reader::FileQuery| {
        let (path, mode) = (query.named_path("path")?, query.mode()?);
        Ok(FileOp::Write { path, mode, parents: query.flag("parents")? })
    };
    let begun = request.begin(order).await;
    let mut work = request.sandbox.touched(begun)?;
    let path = work.paths[0].clone();
    upload::forward(&request, &mut work, body).await?;
    let info = work.info().await.map_err(|error| request.fault(error))?;
    request.record_created(&path, &info);
    Json::ok(&view::entry(&path, &info))
}
