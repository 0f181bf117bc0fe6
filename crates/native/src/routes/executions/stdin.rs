//! `POST /v1/sandboxes/{id}/executions/{execution}/stdin`: writes the body to the command's standard input as it arrives.

use admission::endpoint::{INTERACT, Json, Parameter, RawBody, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, StdinWritten};
use axum::http::{StatusCode, header};
use http_body_util::BodyExt;

use super::ExecutionRequest;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::{broken_body, values};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/executions/{execution}/stdin", INTERACT)
        .describe(
            "writeStdin",
            Tag::Executions,
            "Write to standard input",
            "Writes the body to standard input; the response is sent when the command has taken all bytes. \
             On a terminal the body is keyboard input, and `close` sends Ctrl-D. Bodies of concurrent \
             requests are written in blocks of 64 KiB, each of which is contiguous.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::EXECUTION_ID,
            Parameter::flag("close", "Whether to close standard input afterwards; default `false`."),
            Parameter::AUTO_RESUME,
        ])
        .raw_body("application/octet-stream", true, "The bytes to write. May be empty.")
        .returns::<StdinWritten>(StatusCode::OK, "The command has taken all bytes.")
        .errors([
            (ErrorCode::InvalidRequest, "The request is malformed, or its body was incomplete"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
            (ErrorCode::ExecutionEnded, "The execution has ended"),
            (ErrorCode::StdinClosed, "Its standard input is not open"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(write)
}

async fn write(call: Call<Caller, RawBody>) -> Result<Json<StdinWritten>, ApiError> {
    let (call, RawBody(mut body)) = call.split_body();
    let request = ExecutionRequest::find(&call).await?;
    let (sandbox, headers) = (&request.sandbox, &call.parts.headers);
    let query = sandbox.touched(reader::execution_query(call.parts.uri.query()))?;
    let encodings = values(headers, header::CONTENT_ENCODING);
    let ranges = values(headers, header::CONTENT_RANGE);
    sandbox.touched(reader::raw_content(encodings, ranges))?;
    let input = sandbox.handle().write_stdin(&request.execution, query.auto_resume).await;
    let input = input.map_err(|error| sandbox.fault(error))?;
    let mut bytes_written = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| {
            let mut error = broken_body(&fault);
            error.message.push_str("; the bytes before that were written");
            error
        })?;
        let Ok(data) = frame.into_data() else { continue };
        input.write(&data).await.map_err(|error| sandbox.fault(error))?;
        bytes_written += data.len() as u64;
    }
    if query.close {
        input.close().await.map_err(|error| sandbox.fault(error))?;
    }
    Json::ok(&StdinWritten { bytes_written, closed: query.close })
}
