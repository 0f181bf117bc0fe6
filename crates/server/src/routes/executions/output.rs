//! `GET /v1/sandboxes/{id}/executions/{execution}/output`: what an execution printed, as one piece or as a stream that goes on.

use api::{ErrorCode, ExecutionOutput};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Channel, EngineError, ExecutionState, ExecutionStatus, OutputEvent};
use reader::Place;
use rules::OutputPosition;
use serde_json::json;

use super::follow::{self, Begin};
use super::{Asked, shown};
use crate::endpoint::parameter::inline;
use crate::endpoint::{Call, Content, Endpoint, Parameter, READ, Tag};
use crate::error::ApiError;
use crate::output::{self, BufferedOutput, OutputReservation};
use crate::routes::read;

/// Of each channel in one answer that is held in memory; `more` says that there is more.
const MOST_AT_ONCE: usize = 1 << 20;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/executions/{execution}/output", READ)
        .describe(
            "getOutput",
            Tag::Executions,
            "Read the output of an execution",
            "Starts at the beginning, or after `Last-Event-ID` or `after`. With `Accept: \
         text/event-stream` the response is a stream of the same events as for execute, each \
         with an `id`, until the execution has ended. A client that reconnects with the last \
         id gets every byte once, also after a restart of the service. If output was dropped, \
         an event `dropped` tells how many bytes. Without that header the response is the \
         output so far. Reading does not keep the sandbox awake.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::EXECUTION_ID,
            Parameter::query(
                "after",
                "Only output after this event id, `next` or `outputEnd`.",
                inline::<api::OutputPlace>,
            ),
            Parameter::header(
                "Last-Event-ID",
                "Same as `after`; takes precedence over it.",
                inline::<api::OutputPlace>,
            ),
            Parameter::flag("lineEnds", "`true` for a stream with line ends, as for execute."),
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
            (ErrorCode::InvalidRequest, "The position is malformed or past the end of the output"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
        ])
        .handler(output)
}

async fn output(call: Call) -> Result<Response, ApiError> {
    let Call { service, caller, request_id, parts, .. } = call;
    let asked = Asked::new(service, &caller, &parts.uri).await?;
    let status = asked.status().await?;
    let query = reader::execution_query(parts.uri.query())?;
    let (place, field) = match last_seen(&parts.headers)? {
        Some(place) => (Some(place), "Last-Event-ID"),
        None => (query.after, "after"),
    };
    let is_stream = reader::wants_stream(read::values(&parts.headers, header::ACCEPT));
    let from = match place {
        None => OutputPosition::default(),
        Some(Place::At(position)) if status.output.covers(position) => position,
        Some(Place::At(position)) => return Err(past_the_end(field, &position.to_string(), &status)),
        Some(Place::End) if status.state == ExecutionState::Running => {
            return Err(past_the_end(field, "end", &status));
        }
        Some(Place::End) if is_stream => return Ok(StatusCode::NO_CONTENT.into_response()),
        Some(Place::End) => status.output,
    };
    if !is_stream {
        let memory = asked.service.output_memory.response(&asked.account);
        let content = output::Content::from(whole(&asked, from, &status, memory).await?);
        let json = HeaderValue::from_static("application/json; charset=utf-8");
        let mut response = Response::new(());
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        return Ok(content.into_response(response));
    }
    let reader = asked.service.engine.sandbox(&asked.account, &asked.id).follow(&asked.execution, from).await;
    let reader = reader.map_err(|error| asked.fault(error))?;
    let begin = Begin { reader, from, line_ends: query.line_ends, key_id: caller.key_id, request_id };
    Ok(follow::response(asked.service, begin))
}

fn last_seen(headers: &HeaderMap) -> Result<Option<Place>, ApiError> {
    let mut values = read::values(headers, LAST_EVENT_ID);
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        let message = "header Last-Event-ID was sent more than once; allowed is one";
        return Err(ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", "Last-Event-ID"));
    }
    Ok(Some(reader::place(&String::from_utf8_lossy(value), "Last-Event-ID")?))
}

pub fn past_the_end(field: &str, got: &str, status: &ExecutionStatus) -> ApiError {
    let message = format!("{field} is {got}; the output ends at {} so far", status.output);
    ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", field)
}

/// What there is now, as far as one answer holds it.
async fn whole(
    asked: &Asked,
    from: OutputPosition,
    status: &ExecutionStatus,
    mut memory: OutputReservation,
) -> Result<BufferedOutput, ApiError> {
    let follow = asked.service.engine.sandbox(&asked.account, &asked.id).follow(&asked.execution, from).await;
    let mut reader = follow.map_err(|error| asked.fault(error))?;
    let most = asked.service.max_output_bytes.min(MOST_AT_ONCE);
    let (mut stdout, mut stderr, mut dropped, mut next) = (Vec::new(), Vec::new(), false, from);
    // Up to what there was at the beginning: a command may print for ever.
    while !next.covers(status.output) && stdout.len() < most && stderr.len() < most {
        match reader.next().await.map_err(|error: EngineError| asked.fault(error))? {
            OutputEvent::Output { channel, bytes, position, .. } => {
                let to = if channel == Channel::Stdout { &mut stdout } else { &mut stderr };
                to.extend_from_slice(&bytes);
                let allocated = stdout.capacity() + stderr.capacity();
                output::cover(&mut memory, allocated).await?;
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
    if more || status.state == ExecutionState::Running {
        // A character whose rest has not come is for the next answer.
        next.stdout -= cut_character(&mut stdout);
        next.stderr -= cut_character(&mut stderr);
    }
    let shown = ExecutionOutput {
        stdout: String::new(),
        stderr: String::new(),
        next: next.to_string(),
        more,
        dropped,
        state: shown::state(status.state),
    };
    output::snapshot([stdout, stderr], &shown, memory).await
}

/// Takes the beginning of a character off the end, and tells how many bytes that were.
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
