//! `PUT /v1/sandboxes/{id}/files/tar`: unpacks a tar archive into a directory.

use admission::endpoint::{CHANGE, Json, Parameter, RawBody, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, upload, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::put("/v1/sandboxes/{id}/files/tar", CHANGE)
        .describe(
            "unpackArchive",
            Tag::Files,
            "Unpack a tar archive",
            "Unpacks an uncompressed tar archive (ustar, pax or GNU) into a directory, which is \
         created if missing. Entries stay within the directory: `..` is refused, a leading \
         `/` is removed, and symbolic links are not followed. Existing files are replaced. \
         Devices, FIFOs and sockets are skipped and counted. All files belong to root. After \
         a failure, the entries unpacked so far remain.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/project"),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .raw_body("application/x-tar", true, "The archive.")
        .returns::<api::Unpacked>(StatusCode::OK, "Counts of the unpacked entries.")
        .errors(COMMON_ERRORS)
        .errors([
            (
                ErrorCode::InvalidRequest,
                "The body is not such an archive, is incomplete, or has an entry outside the \
         directory",
            ),
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::FileExists, "The path exists and is not a directory"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
            (ErrorCode::DirectoryNotEmpty, "An entry would replace a directory that is not empty"),
            (ErrorCode::DiskFull, "The sandbox's disk is full"),
        ])
        .handler(unpack)
}

async fn unpack(call: Call<Caller, RawBody>) -> Result<Json<api::Unpacked>, ApiError> {
    let (call, RawBody(body)) = call.split_body();
    let request = FileRequest::to("unpack", &call).await?;
    request.sandbox.touched(upload::check(&call.parts.headers))?;
    let begun = request.begin(|query| Ok(FileOp::Unpack { path: query.path("path")? })).await;
    let mut work = request.sandbox.touched(begun)?;
    let path = view::text(&work.paths[0]);
    upload::forward(&request, &mut work, body).await?;
    let tally = work.tally().await.map_err(|error| request.fault(error))?;
    request.record_archive(api::EventKind::FileCreated, &path);
    Json::ok(&api::Unpacked {
        path,
        files: tally.files,
        directories: tally.directories,
        links: tally.links,
        skipped: tally.skipped,
        bytes: tally.bytes,
    })
}
