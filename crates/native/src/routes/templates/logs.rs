//! `GET /v1/templates/{id}/logs`: the log of a build as Server-Sent Events, from its start or behind an event.

use std::sync::Arc;

use admission::endpoint::parameter::last_log_event;
use admission::endpoint::{Content, Parameter, READ, Tag};
use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{BuildEvent, ErrorCode, TemplateId};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use builder::LogReader;
use bytes::Bytes;
use futures_util::FutureExt;
use service::Service;
use service::error::{key_ended, of_builder};

use super::{names, view};
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::segment;
use crate::routes::read::values;
use crate::sse::{self, Chunk, KEEP_ALIVE};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The size at which a chunk is sent even if more events are there.
const CHUNK_BYTES: usize = 64 << 10;
/// The most digits of the id of an event.
const ID_DIGITS: usize = 18;
/// The id of the last event.
const END: &str = "end";

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/templates/{id}/logs", READ)
        .describe(
            "followTemplateLogs",
            Tag::Templates,
            "Follow the log of a build",
            "Streams the log from its start, and new events until the build is over. `step` tells which step begins, \
             or that its result comes from the cache; `stdout` and `stderr` are lines of output; `note` is a remark of \
             the service. The last event is `done` with the template. The data of `step` and `done` is a JSON object, that of the others is text. A client that reconnects with `Last-Event-ID` \
             gets the events behind that one.",
        )
        .parameters([
            Parameter::TEMPLATE_ID,
            Parameter::header("Last-Event-ID", "The id of the last event that was received.", last_log_event),
        ])
        .responds(StatusCode::OK, "The log.", [Content::events()])
        .responds(
            StatusCode::NO_CONTENT,
            "Behind the last event: there is no more, and clients should not reconnect.",
            [],
        )
        .errors([
            (ErrorCode::InvalidRequest, "`Last-Event-ID` is not the id of an event of this log"),
            (ErrorCode::TemplateNotFound, "The template does not exist or was deleted"),
        ])
        .handler(logs)
}

async fn logs(call: Call) -> Result<Response, ApiError> {
    let Call { service, caller, request_id, parts, .. } = call;
    let id = names::find(&service, &caller.account, &segment(&parts.uri, 3))?;
    let refused = |got: &str| {
        let message = format!(
            "header Last-Event-ID is {}; allowed: the id of an event of this log",
            rules::quoted(got)
        );
        ApiError::new(ErrorCode::InvalidRequest, message).with_detail("field", "Last-Event-ID")
    };
    let given = values(&parts.headers, LAST_EVENT_ID).next().map(String::from_utf8_lossy);
    let position = match given.as_deref() {
        None | Some("") => 0,
        Some(END) => {
            // A client has this id only if the build is over.
            service.builder.find(&caller.account, &id).map_err(of_builder)?;
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
        Some(given) => log_position(given).ok_or_else(|| refused(given))?,
    };
    let reader = service.builder.log(&caller.account, &id, position).map_err(of_builder)?;
    let reader = reader.ok_or_else(|| refused(given.as_deref().unwrap_or_default()))?;
    let (account, key_id) = (Arc::clone(&caller.account), Arc::clone(&caller.key_id));
    Ok(sse::response(LogStream {
        service,
        account,
        key_id,
        request_id,
        id,
        position,
        reader,
        stage: Stage::First,
    }))
}

/// Reads the id of an event. The last one is [`END`].
fn log_position(id: &str) -> Option<u64> {
    let is_number = (1..=ID_DIGITS).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit());
    id.parse().ok().filter(|_| is_number)
}

struct LogStream {
    service: Arc<Service>,
    account: Arc<str>,
    key_id: Arc<str>,
    request_id: RequestId,
    id: TemplateId,
    position: u64,
    reader: LogReader,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    Following,
    Ended,
}

impl sse::Source for LogStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        match self.stage {
            Stage::First => {
                self.stage = Stage::Following;
                return Some(Chunk::opening(&self.position).into_bytes());
            }
            Stage::Ended => return None,
            Stage::Following => {}
        }
        let mut chunk = Chunk::default();
        if !self.service.gate.keyring.has(&self.key_id) {
            self.fail(&mut chunk, &key_ended());
            return Some(chunk.into_bytes());
        }
        while self.stage == Stage::Following && chunk.len() < CHUNK_BYTES {
            let events = if chunk.is_empty() {
                tokio::select! {
                    biased;
                    () = self.service.stopping.cancelled() => {
                        self.fail(&mut chunk, &stopping());
                        break;
                    }
                    events = self.reader.next() => events,
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        return Some(Chunk::comment("nothing new").into_bytes());
                    }
                }
            } else {
                match self.reader.next().now_or_never() {
                    Some(events) => events,
                    None => break,
                }
            };
            match events {
                Ok(Some(events)) => {
                    for event in events {
                        self.position = event.id;
                        chunk.event(Some(&event.id), event.kind, &event.data);
                    }
                }
                Ok(None) => self.end(&mut chunk),
                Err(error) => self.fail(&mut chunk, &ApiError::internal(error)),
            }
        }
        Some(chunk.into_bytes())
    }
}

impl LogStream {
    fn end(&mut self, chunk: &mut Chunk) {
        match self.service.builder.find(&self.account, &self.id) {
            Ok(template) => {
                self.stage = Stage::Ended;
                chunk.json(Some(&END), BuildEvent::Done, &view::template(&template));
            }
            Err(error) => self.fail(chunk, &of_builder(error)),
        }
    }

    /// The client can continue with the id of the last event.
    fn fail(&mut self, chunk: &mut Chunk, error: &ApiError) {
        self.stage = Stage::Ended;
        chunk.error(Some(&self.position), error, &self.request_id);
    }
}

fn stopping() -> ApiError {
    ApiError::stopping(
        "the daemon is stopping; the next one continues the build: reconnect with Last-Event-ID",
    )
}
