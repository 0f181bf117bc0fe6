//! `GET /v1/sandboxes/{id}/files/tar`: a directory as a tar archive.

use admission::endpoint::{Content, INSPECT, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{FileOp, FileResponse};

use super::{COMMON_ERRORS, FileRequest, outgoing, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files/tar", INSPECT)
        .describe(
            "packDirectory",
            Tag::Files,
            "Download a directory as a tar archive",
            "Names are relative to the directory. Devices, FIFOs, sockets and mounts below the \
         directory are omitted. An incomplete archive lacks the end marker.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/project"),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .responds(StatusCode::OK, "The archive, in pax format.", [Content::raw("application/x-tar")])
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::NotADirectory, "The path is not a directory"),
        ])
        .handler(pack)
}

async fn pack(call: Call) -> Result<Response, ApiError> {
    let request = FileRequest::to("pack", &call).await?;
    let mut work = request.begin(|query| Ok(FileOp::Pack { path: query.path("path")? })).await?;
    match work.next_response().await.map_err(|error| request.fault(error))? {
        FileResponse::Packing => {}
        _ => return Err(ApiError::internal("the agent gave an unexpected response to a pack operation")),
    }
    request.record_archive(api::EventKind::FileRead, &view::text(&work.paths[0]));
    let body = outgoing::body(work, None, request.sandbox.service.stopping.clone());
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"))], body).into_response())
}
