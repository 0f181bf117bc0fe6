//! `GET /v1/sandboxes/{id}/executions/{execution}/output`: the output of an execution, as one response or as a stream.

use admission::endpoint::parameter::{inline, last_output_offset};
use admission::endpoint::{Content, INSPECT, Parameter, Tag};
use admission::error::ApiError;
use admission::output_memory::OutputReservation;
use api::{ErrorCode, ExecutionOutput, OutputEncoding};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Channel, EngineError, ExecutionState, ExecutionStatus, OutputEvent};
use reader::OutputOffset;
use rules::OutputPosition;
use serde_json::json;
use service::output::{self, BufferedOutput};

use super::ExecutionRequest;
use super::follow::{self, StreamStart};
use super::view::execution_state;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read;

/// The most bytes of each stream in a buffered response; `more` is then `true`.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/executions/{execution}/output", INSPECT)
        .describe(
            "getOutput",
            Tag::Executions,
            "Read the output of an execution",
            "Returns the output from the beginning, or after `Last-Event-ID` or `after`. With `Accept: \
             text/event-stream` the response is a stream of the same events as for execute, each with an \
             `id`, until the execution ends. A client that reconnects with the last id gets each byte \
             exactly once, also after a restart of the service. If requested output was dropped, an event \
             `dropped` reports the number of bytes. Without that header the response is the output so far. \
             Reading does not count as activity.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::EXECUTION_ID,
            Parameter::query(
                "after",
                "Only output after this offset: an event id, `next` or `outputEnd`.",
                inline::<api::OutputOffset>,
            ),
            Parameter::header(
                "Last-Event-ID",
                "Same as `after`; takes precedence over it.",
                last_output_offset,
            ),
            Parameter::flag("lineEnds", "`true` for a stream with line ends, as for execute."),
            Parameter::ENCODING
                .describe("`base64` for the exact bytes of the output, as for execute; default `text`."),
        ])
        .responds(
            StatusCode::OK,
            "The output so far, or the stream.",
            [
                Content::json::<ExecutionOutput>(),
                Content::events().example(json!(
                    "id: 6.0\n\
                     event: stdout\n\
                     data: hello\n\n\
                     id: end\n\
                     event: done\n\
                     data: {\"exitCode\":0,\"durationMs\":3,\"signal\":null}\n\n"
                )),
            ],
        )
        .responds(
            StatusCode::NO_CONTENT,
            "For a stream after the last event: there is no more output, and clients should not \
         reconnect.",
            [],
        )
        .errors([
            (ErrorCode::InvalidRequest, "The offset is malformed or past the end of the output"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
        ])
        .handler(output)
}

async fn output(call: Call) -> Result<Response, ApiError> {
    let request = ExecutionRequest::find(&call).await?;
    let Call { service, caller, request_id, parts, .. } = call;
    let status = request.status().await?;
    let query = reader::execution_query(parts.uri.query())?;
    let (offset, field) = match last_seen(&parts.headers)? {
        Some(offset) => (Some(offset), "Last-Event-ID"),
        None => (query.after, "after"),
    };
    let is_stream = reader::wants_stream(read::values(&parts.headers, header::ACCEPT));
    let from = match offset {
        None => OutputPosition::default(),
        Some(OutputOffset::At(position)) if status.output.covers(position) => position,
        Some(OutputOffset::At(position)) => return Err(past_the_end(field, &position.to_string(), &status)),
        Some(OutputOffset::End) if status.state == ExecutionState::Running => {
            return Err(past_the_end(field, "end", &status));
        }
        Some(OutputOffset::End) if is_stream => return Ok(StatusCode::NO_CONTENT.into_response()),
        Some(OutputOffset::End) => status.output,
    };
    if !is_stream {
        let memory = service.gate.output_memory.response(&caller.account);
        let content =
            output::Content::from(whole(&request, from, &status, query.form.encoding(), memory).await?);
        let json = HeaderValue::from_static("application/json; charset=utf-8");
        let mut response = Response::new(());
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        return Ok(content.into_response(response));
    }
    let reader = request.sandbox.handle().follow(&request.execution, from).await;
    let reader = reader.map_err(|error| request.sandbox.fault(error))?;
    let start = StreamStart { reader, from, form: query.form, key_id: caller.key_id, request_id };
    Ok(follow::response(service, start))
}

fn last_seen(headers: &HeaderMap) -> Result<Option<OutputOffset>, ApiError> {
    let mut values = read::values(headers, LAST_EVENT_ID);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let message = "header Last-Event-ID was sent more than once; send it once";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", "Last-Event-ID"));
    }
    // Clients that have received no event may send an empty one.
    if value.is_empty() {
        return Ok(None);
    }
    Ok(Some(reader::output_offset(&String::from_utf8_lossy(value), "Last-Event-ID")?))
}

pub fn past_the_end(field: &str, got: &str, status: &ExecutionStatus) -> ApiError {
    let message = format!("{field} is {got}; the output ends at {} so far", status.output);
    ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", field)
}

/// The output so far, up to the limit of one response.
async fn whole(
    request: &ExecutionRequest,
    from: OutputPosition,
    status: &ExecutionStatus,
    encoding: OutputEncoding,
    mut memory: OutputReservation,
) -> Result<BufferedOutput, ApiError> {
    let sandbox = &request.sandbox;
    let follow = sandbox.handle().follow(&request.execution, from).await;
    let mut reader = follow.map_err(|error| sandbox.fault(error))?;
    let most = sandbox.service.max_output_bytes.min(MAX_RESPONSE_BYTES);
    let (mut stdout, mut stderr, mut dropped, mut next) = (Vec::new(), Vec::new(), false, from);
    // Up to the output at the start of the request: a command may print forever.
    while !next.covers(status.output) && stdout.len() < most && stderr.len() < most {
        match reader.next().await.map_err(|error: EngineError| sandbox.fault(error))? {
            OutputEvent::Output { channel, bytes, position, .. } => {
                let to = if channel == Channel::Stdout { &mut stdout } else { &mut stderr };
                to.extend_from_slice(&bytes);
                let allocated = stdout.capacity() + stderr.capacity();
                memory.cover(allocated).await?;
                next = position;
            }
            OutputEvent::Dropped { position } => {
                (dropped, next) = (true, position);
                stdout.clear();
                stderr.clear();
            }
            OutputEvent::Ended(_) => break,
        }
    }
    let more = !next.covers(status.output);
    if encoding == OutputEncoding::Text && (more || status.state == ExecutionState::Running) {
        // An incomplete character is left for the next response.
        next.stdout -= cut_character(&mut stdout);
        next.stderr -= cut_character(&mut stderr);
    }
    let object = ExecutionOutput {
        stdout: String::new(),
        stderr: String::new(),
        next: next.to_string(),
        more,
        dropped,
        state: execution_state(status.state),
        encoding,
    };
    output::snapshot([stdout, stderr], &object, memory).await
}

/// Removes an incomplete character from the end and returns its length.
fn cut_character(bytes: &mut Vec<u8>) -> u64 {
    let last = bytes.len().saturating_sub(4);
    let begins = (last..bytes.len()).rev().find(|at| bytes[*at] & 0xc0 != 0x80);
    let Some(begin) = begins else { return 0 };
    match std::str::from_utf8(&bytes[begin..]) {
        Err(error) if error.error_len().is_none() => {
            let cut = bytes.len() - begin;
            bytes.truncate(begin);
            cut as u64
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_torn() {
        for (bytes, kept, cut) in [
            (&b"a\xe2\x82"[..], &b"a"[..], 2),
            (b"\xe2\x82\xac", b"\xe2\x82\xac", 0),
            (b"a\xff", b"a\xff", 0),
            (b"", b"", 0),
            (b"\x80\x80\x80\x80\x80", b"\x80\x80\x80\x80\x80", 0),
            (b"x\xf0\x9f\x98", b"x", 3),
        ] {
            let mut given = bytes.to_vec();
            assert_eq!((cut_character(&mut given), &given[..]), (cut, kept), "{bytes:?}");
        }
    }
}
