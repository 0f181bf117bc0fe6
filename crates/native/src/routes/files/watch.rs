//! `GET /v1/sandboxes/{id}/files/watch`: the changes in a directory as Server-Sent Events.
//!
//! The agent holds changes in a bounded queue while the client does not read; if it overflows, the client gets an event.

use std::sync::Arc;

use admission::endpoint::{Content, INSPECT, Parameter, Tag};
use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{ErrorCode, FileChange, FileChangeKind, StreamEvent};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use engine::{AgentError, DaemonError, EngineError, Watch, WatchEvent, WatchEventKind};
use futures_util::FutureExt;
use serde_json::json;
use service::Service;
use service::error::{OperationKind, key_ended, of_engine, too_many_watches};

use super::{COMMON_ERRORS, FileRequest, view};
use crate::endpoint::{Call, Endpoint};
use crate::sse::{self, Chunk, EventName, KEEP_ALIVE};

/// The size at which a chunk is sent even if more changes are available.
const CHUNK_BYTES: usize = 64 << 10;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files/watch", INSPECT)
        .describe(
            "watchFiles",
            Tag::Files,
            "Watch a directory",
            "A stream of events. The first event is `ready`: later changes are reported. Each `change` has the `kind` \
             (`create`, `write`, `remove`, `rename`, `chmod`) and the `path`. A move is a `rename` of the old path and a \
             `create` of the new one. A write by this API is one change of its path: a `write` if the path existed, else \
             a `create`. An event `overflow` replaces changes that were lost because they were not read in \
             time. With `recursive`, directories below are watched too, also new ones, at most 8192. The stream ends \
             with `done` when the directory is deleted, and with `error` otherwise. The sandbox counts as active while \
             the stream is open. A sandbox has at most 32 watches.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace"),
            Parameter::flag("recursive", "`true` to watch all directories below, too."),
            Parameter::AUTO_RESUME,
        ])
        .responds(
            StatusCode::OK,
            "The stream.",
            [Content::events().example(json!(
                "event: ready\ndata: {}\n\n\
                 event: change\ndata: {\"kind\":\"create\",\"path\":\"/workspace/notes.txt\"}\n\n"
            ))],
        )
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::NotADirectory, "The path is not a directory"),
        ])
        .handler(watch)
}

async fn watch(call: Call) -> Result<Response, ApiError> {
    let request = FileRequest::find(&call).await?;
    let Call { service, caller, request_id, .. } = call;
    let path = request.query.path("path")?;
    let recursive = request.query.flag("recursive")?;
    let auto_resume = request.query.auto_resume()?;
    let begun = request.sandbox.handle().watch_below_workdir(auto_resume, &path, recursive).await;
    let (watch, root) = begun.map_err(|error| match error {
        EngineError::Agent(AgentError::Busy { message }) => {
            too_many_watches(message).with_detail("sandboxId", request.sandbox.id.as_str())
        }
        error => request.fault(error),
    })?;
    let stage = WatchStage::First;
    Ok(sse::response(ChangeStream { service, key_id: caller.key_id, request_id, watch, root, stage }))
}

struct ChangeStream {
    service: Arc<Service>,
    key_id: Arc<str>,
    request_id: RequestId,
    watch: Watch,
    root: Vec<u8>,
    stage: WatchStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStage {
    First,
    Following,
    Ended,
}

/// The messages of the stream besides those of all streams.
#[derive(Debug, Clone, Copy)]
enum Message {
    Ready,
    Change,
    Overflow,
}

impl EventName for Message {
    fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Change => "change",
            Self::Overflow => "overflow",
        }
    }
}

impl sse::Source for ChangeStream {
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut chunk = Chunk::default();
        match self.stage {
            WatchStage::First => {
                self.stage = WatchStage::Following;
                chunk.json(None, Message::Ready, &json!({}));
                return Some(chunk.into_bytes());
            }
            WatchStage::Ended => return None,
            WatchStage::Following => {}
        }
        if !self.service.gate.keyring.has(&self.key_id) {
            self.stage = WatchStage::Ended;
            chunk.error(None, &key_ended(), &self.request_id);
            return Some(chunk.into_bytes());
        }
        while self.stage == WatchStage::Following && chunk.len() < CHUNK_BYTES {
            let next = if chunk.is_empty() {
                tokio::select! {
                    biased;
                    () = self.service.stopping.cancelled() => Err(EngineError::Daemon(DaemonError::Stopping)),
                    next = self.watch.next() => next,
                    () = tokio::time::sleep(KEEP_ALIVE) => {
                        return Some(Chunk::comment("nothing new").into_bytes());
                    }
                }
            } else {
                match self.watch.next().now_or_never() {
                    Some(next) => next,
                    None => break,
                }
            };
            self.take(&mut chunk, next);
        }
        Some(chunk.into_bytes())
    }
}

impl ChangeStream {
    fn take(&mut self, chunk: &mut Chunk, next: Result<Option<WatchEvent>, EngineError>) {
        match next {
            Ok(Some(WatchEvent::Changed { kind, name })) => {
                chunk.json(None, Message::Change, &change(kind, &view::below(&self.root, &name)));
            }
            Ok(Some(WatchEvent::Overflow)) => chunk.json(None, Message::Overflow, &json!({})),
            Ok(None) => {
                self.stage = WatchStage::Ended;
                chunk.json(None, StreamEvent::Done, &json!({}));
            }
            Err(error) => {
                self.stage = WatchStage::Ended;
                chunk.error(None, &of_engine(error, None, OperationKind::Files), &self.request_id);
            }
        }
    }
}

fn change(kind: WatchEventKind, path: &[u8]) -> FileChange {
    let path = view::normalized(path);
    FileChange {
        kind: match kind {
            WatchEventKind::Create => FileChangeKind::Create,
            WatchEventKind::Write => FileChangeKind::Write,
            WatchEventKind::Remove => FileChangeKind::Remove,
            WatchEventKind::Rename => FileChangeKind::Rename,
            WatchEventKind::Chmod => FileChangeKind::Chmod,
        },
        path: view::text(&path),
        raw_path: std::str::from_utf8(&path).is_err().then(|| view::encoded(&path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_the_absolute_path() {
        let named = change(WatchEventKind::Write, &view::below(b"/w/", b"a"));
        assert_eq!(
            named,
            FileChange { kind: FileChangeKind::Write, path: "/w/a".to_owned(), raw_path: None }
        );
        // The directory itself.
        assert_eq!(change(WatchEventKind::Remove, &view::below(b"/w", b"")).path, "/w");
        let odd = change(WatchEventKind::Create, &view::below(b"/w", b"\xff"));
        assert_eq!(odd.raw_path.as_deref(), Some("/w/%FF"));
    }
}
