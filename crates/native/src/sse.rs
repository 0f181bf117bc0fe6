//! Server-Sent Events: the only writer of the format, and the response that carries it.
//!
//! hyper requests a chunk when the last one is on its way, and only then a [`Source`] builds it. A slow client costs no more memory
//! than one chunk. hyper drops the source when the client disconnects.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::Duration;

use admission::error::ApiError;
use admission::request_id::RequestId;
use api::{BuildEvent, CodeEvent, EventKind, StreamEvent};
use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use serde::Serialize;

use service::output::Piece;

/// Proxies drop connections without traffic after a minute.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The delay before clients reconnect automatically.
const RETRY_MS: u64 = 1000;

/// Builds the chunks of a stream.
pub trait Source: Send + 'static {
    /// Whole messages; `None` after the last.
    fn next_chunk(&mut self) -> impl Future<Output = Option<Bytes>> + Send;
}

/// The response that carries a stream.
pub fn response(source: impl Source) -> Response {
    let chunks = stream::unfold(source, |mut source| async move {
        let chunk = source.next_chunk().await?;
        Some((Ok::<_, Infallible>(chunk), source))
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // Makes nginx and similar proxies pass on messages as they come.
        (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(chunks)).into_response()
}

/// The name of a message.
pub trait EventName: Copy {
    fn name(self) -> &'static str;
}

impl EventName for StreamEvent {
    fn name(self) -> &'static str {
        self.as_str()
    }
}

impl EventName for CodeEvent {
    fn name(self) -> &'static str {
        self.as_str()
    }
}

impl EventName for BuildEvent {
    fn name(self) -> &'static str {
        self.as_str()
    }
}

impl EventName for EventKind {
    fn name(self) -> &'static str {
        self.as_str()
    }
}

/// Messages under construction.
#[derive(Debug, Default)]
pub struct Chunk(BytesMut);

impl Chunk {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn into_bytes(self) -> Bytes {
        self.0.freeze()
    }

    /// A comment, which keeps a connection alive and which clients ignore.
    pub fn comment(text: &'static str) -> Self {
        let mut chunk = Self::comment_line(text);
        chunk.end();
        chunk
    }

    /// A comment within the message that follows.
    pub fn comment_line(text: &'static str) -> Self {
        let mut chunk = Self::default();
        chunk.field(": ", text);
        chunk
    }

    /// The first message of a stream that can be resumed: how long to wait before a reconnect, and where the stream begins.
    pub fn opening(id: &dyn Display) -> Self {
        let mut chunk = Self::default();
        chunk.field("retry: ", &RETRY_MS.to_string());
        chunk.id(id);
        chunk.end();
        chunk
    }

    /// A message without data: clients remember its id and show nothing.
    pub fn position(&mut self, id: &dyn Display) {
        self.id(id);
        self.end();
    }

    /// A message of output. Its further field is an extension of ours that says how to read `data`.
    pub fn output(&mut self, id: Option<&dyn Display>, event: impl EventName, piece: &Piece) {
        self.begin(id, event, &piece.data);
        if let Some((name, value)) = piece.field {
            self.0.extend_from_slice(name.as_bytes());
            self.field(": ", value);
        }
        self.end();
    }

    /// A message.
    pub fn event(&mut self, id: Option<&dyn Display>, event: impl EventName, data: &str) {
        self.begin(id, event, data);
        self.end();
    }

    fn begin(&mut self, id: Option<&dyn Display>, event: impl EventName, data: &str) {
        if let Some(id) = id {
            self.id(id);
        }
        self.field("event: ", event.name());
        // A carriage return ends a line of the stream, so it begins another `data:` line: clients read a line feed in its place.
        for line in data.split('\r') {
            self.field("data: ", line);
        }
    }

    /// A message whose data is a JSON document.
    pub fn json(&mut self, id: Option<&dyn Display>, event: impl EventName, document: &impl Serialize) {
        // The documents of streams are structs of text and numbers, which can always be written.
        self.event(id, event, &serde_json::to_string(document).unwrap_or_default());
    }

    /// The last message of a stream that failed. The cause goes into the log.
    pub fn error(&mut self, id: Option<&dyn Display>, error: &ApiError, request_id: &RequestId) {
        if let Some(cause) = error.cause_text() {
            tracing::error!(request_id = %request_id.0, cause, "a stream failed");
        }
        self.json(id, StreamEvent::Error, &error.object(&request_id.0));
    }

    fn id(&mut self, id: &dyn Display) {
        self.field("id: ", &id.to_string());
    }

    fn field(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.extend_from_slice(b"\n");
    }

    fn end(&mut self) {
        self.0.extend_from_slice(b"\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(chunk: Chunk) -> String {
        String::from_utf8(chunk.into_bytes().to_vec()).unwrap()
    }

    #[test]
    fn messages_are_written_as_the_format_has_them() {
        let mut chunk = Chunk::default();
        chunk.event(None, StreamEvent::Stdout, "hello");
        let piece = Piece { data: "a\rb".to_owned(), field: Some(("end", "none")) };
        chunk.output(Some(&"6.0"), StreamEvent::Stderr, &piece);
        chunk.event(None, EventKind::SandboxPaused, "");
        chunk.position(&"7.0");
        assert_eq!(
            text(chunk),
            "event: stdout\ndata: hello\n\n\
             id: 6.0\nevent: stderr\ndata: a\ndata: b\nend: none\n\n\
             event: sandbox.paused\ndata: \n\n\
             id: 7.0\n\n"
        );
        for (data, framed) in [
            ("a b", "data: a b\n"),
            ("", "data: \n"),
            (" a", "data:  a\n"),
            ("10%\r20%\r", "data: 10%\ndata: 20%\ndata: \n"),
        ] {
            let mut chunk = Chunk::default();
            chunk.event(None, StreamEvent::Stdout, data);
            assert_eq!(text(chunk), format!("event: stdout\n{framed}\n"));
        }
        assert_eq!(text(Chunk::comment("still running")), ": still running\n\n");
        assert_eq!(text(Chunk::opening(&"0.0")), "retry: 1000\nid: 0.0\n\n");
    }
}
