//! `GET /v1/sandboxes/{id}/executions/{execution}/output`: what an execution printed, as one piece or as a stream that goes on.

use std::sync::Arc;

use api::{ErrorCode, ExecutionOutput};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::{Channel, EngineError, ExecutionState, ExecutionStatus, OutputEvent};
use reader::Place;
use rules::OutputPosition;

use super::follow::{self, Begin};
use super::{Asked, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::layers::RequestId;
use crate::output::{self, BufferedOutput, Content, OutputReservation};
use crate::routes::read;
use crate::service::Service;

/// Of each channel in one answer that is held in memory; `more` says that there is more.
const MOST_AT_ONCE: usize = 1 << 20;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Output of an execution
///
/// From its beginning, or from what follows `Last-Event-ID` or `after`. With `Accept: text/event-stream` a stream of the events of
/// execute, each with an `id`, that goes on until the execution has ended; whoever comes back with the last id misses nothing and gets
/// nothing twice, also after a restart of the service. Where output is not kept any more, an event `dropped` says how many bytes. Without
/// it what there is now, as one answer. Reading keeps no sandbox awake.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/executions/{execution}/output", operation_id = "getOutput", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("execution" = api::ExecutionId, Path, description = "Id of the execution."),
        ("after" = inline(Option<api::OutputPlace>), Query, nullable = false, description = "Only what follows this id of an event, or this `next` or `outputEnd`."),
        ("Last-Event-ID" = inline(Option<api::OutputPlace>), Header, nullable = false, description = "As `after`, which it goes over."),
        ("lineEnds" = Option<bool>, Query, nullable = false, description = "`true` for a stream that tells how lines end, as that of execute does.")
    ),
    responses(
        (status = 200, description = "What there is, or the stream.",
            content((ExecutionOutput = "application/json"), (String = "text/event-stream", example = "id: 6.0\nevent: stdout\ndata: hello\n\nid: end\nevent: done\ndata: {\"exitCode\":0,\"durationMs\":3,\"signal\":null}\n\n"))),
        (status = 204, description = "A stream after the id of the last event: there is nothing more, and no reason to come back."),
        (status = 400, description = "A place that is none, or past the end of the output: `INVALID_REQUEST`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. It has no such execution: `EXECUTION_NOT_FOUND`.")
    )
)]
pub async fn output(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, request.uri()).await?;
    let status = asked.status().await?;
    let query = reader::execution_query(request.uri().query())?;
    let (place, field) = match last_seen(request.headers())? {
        Some(place) => (Some(place), "Last-Event-ID"),
        None => (query.after, "after"),
    };
    let is_stream = reader::wants_stream(read::values(request.headers(), header::ACCEPT));
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
        let content = Content::from(whole(&asked, from, &status, memory).await?);
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
