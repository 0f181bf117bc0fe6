//! Streamed output of a command. Dropping the stream closes the connection, and the service then kills the command.

mod encoded;
mod form;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use api::{Done, EventKind};
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use serde_json::Value;

pub use encoded::OutputBytes;
pub use form::{BYTES, LINES, LINES_WITH_ENDS, OutputForm};

use crate::execution::exec_events::{completed, failed};
use crate::sandbox::Sandbox;
use crate::sse::{Event, Parser};
use crate::transport::request_id;
use crate::{Error, Result};

/// The service sends a comment every 15 s while the command is silent.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// An item of a command's output.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// use sandboxd_client::Output;
/// use futures_util::TryStreamExt;
/// let all: Vec<Output> = sandbox.execute("echo hi").stream().await?.try_collect().await?;
/// assert_eq!(all[0], Output::Stdout("hi".to_owned()));
/// assert!(matches!(&all[1], Output::Done(done) if done.exit_code == Some(0)));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output<T = String> {
    /// A line of standard output, without its line end unless [requested](crate::Execute::with_line_ends); or
    /// [bytes](crate::Execute::stream_bytes) of it.
    Stdout(T),
    /// A line or bytes of standard error.
    Stderr(T),
    /// The number of bytes that the execution log has dropped; for detached executions only.
    Dropped(u64),
    /// The result; always the last item.
    Done(Done),
}

/// A stream of [`Output`]. It ends after [`Output::Done`], or after the first error.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// let output = sandbox.execute("echo hi; exit 2").stream().await?;
/// assert_eq!(output.done().await?.exit_code, Some(2));
/// # Ok(()) });
/// ```
pub struct OutputStream<T = String> {
    events: BoxStream<'static, Result<Output<T>>>,
    request_id: Option<String>,
}

impl<T: AsRef<[u8]> + Send + 'static> OutputStream<T> {
    pub(crate) fn new(
        response: Response<Incoming>,
        form: OutputForm<T>,
        sandbox: Sandbox,
        command: Value,
    ) -> Self {
        let request_id = request_id(response.headers());
        let reading = Reading { source: EventSource::new(response), form, bytes: 0, over: false };
        let begin = (reading, sandbox, command);
        let events = try_unfold(begin, |(mut reading, sandbox, command)| async move {
            match reading.next().await {
                Ok(None) => Ok(None),
                Ok(Some(output)) => {
                    if let Output::Done(done) = &output {
                        let streamed = [("command", command.clone()), ("bytes", reading.bytes.into())];
                        sandbox.record_event(EventKind::ExecStreamed, &streamed);
                        let (exit, signal) = (done.exit_code, done.signal.clone());
                        completed(&sandbox, command.clone(), done.duration_ms, exit, signal);
                    }
                    Ok(Some((output, (reading, sandbox, command))))
                }
                Err(error) => Err(failed(&sandbox, command, error)),
            }
        });
        Self { events: events.boxed(), request_id }
    }

    /// The request id, as it appears in the log of the service.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// let output = sandbox.execute("true").stream().await?;
    /// assert!(output.request_id().is_some());
    /// # Ok(()) });
    /// ```
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// Reads to the end and returns the result.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// assert_eq!(sandbox.execute("true").stream().await?.done().await?.exit_code, Some(0));
    /// # Ok(()) });
    /// ```
    pub async fn done(mut self) -> Result<Done> {
        while let Some(output) = self.events.next().await {
            if let Output::Done(done) = output? {
                return Ok(done);
            }
        }
        Err(broken_off())
    }
}

impl<T> Stream for OutputStream<T> {
    type Item = Result<Output<T>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().events.as_mut().poll_next(cx)
    }
}

fn broken_off() -> Error {
    Error::network("the stream ended before the command did; the command may have been killed")
}

struct Reading<T> {
    source: EventSource,
    form: OutputForm<T>,
    /// Bytes of output returned so far.
    bytes: u64,
    over: bool,
}

impl<T: AsRef<[u8]>> Reading<T> {
    async fn next(&mut self) -> Result<Option<Output<T>>> {
        if self.over {
            return Ok(None);
        }
        loop {
            let event = self.source.next().await?.ok_or_else(broken_off)?;
            if let Some(output) = self.form.parse(event)? {
                match &output {
                    Output::Stdout(piece) | Output::Stderr(piece) => {
                        self.bytes += piece.as_ref().len() as u64 + self.form.omitted;
                    }
                    Output::Dropped(_) => {}
                    Output::Done(_) => self.over = true,
                }
                return Ok(Some(output));
            }
        }
    }
}

/// The events of a response body.
pub struct EventSource {
    body: Incoming,
    parser: Parser,
    events: VecDeque<Event>,
}

impl EventSource {
    pub fn new(response: Response<Incoming>) -> Self {
        Self { body: response.into_body(), parser: Parser::new(), events: VecDeque::new() }
    }

    /// `None` at the end of the body.
    pub async fn next(&mut self) -> Result<Option<Event>> {
        while self.events.is_empty() {
            let frame = tokio::time::timeout(LONGEST_SILENCE, self.body.frame()).await;
            let frame = frame.map_err(|_| {
                Error::network(format!("no data for {} s, not even a comment", LONGEST_SILENCE.as_secs()))
            })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame =
                frame.map_err(|error| Error::network("the stream was interrupted").caused_by(error))?;
            if let Some(data) = frame.data_ref() {
                let parsed = self.parser.push(data, &mut self.events);
                parsed.map_err(|error| Error::network(error.to_string()).with_source(error))?;
            }
        }
        Ok(self.events.pop_front())
    }
}

impl<T> OutputForm<T> {
    /// `None` for an event that this version does not know.
    pub fn parse(&self, event: Event) -> Result<Option<Output<T>>> {
        match event.name.as_str() {
            "stdout" => (self.read)(event).map(|piece| Some(Output::Stdout(piece))),
            "stderr" => (self.read)(event).map(|piece| Some(Output::Stderr(piece))),
            _ => parse_rest(&event),
        }
    }
}

/// An event that is not output.
fn parse_rest<T>(event: &Event) -> Result<Option<Output<T>>> {
    match event.name.as_str() {
        "dropped" => {
            let count: Dropped = serde_json::from_str(&event.data).unwrap_or_default();
            Ok(Some(Output::Dropped(count.stdout.saturating_add(count.stderr))))
        }
        "done" => {
            let done = serde_json::from_str(&event.data);
            let done = done.map_err(|error| {
                Error::unknown(200, "the result in the stream cannot be parsed", None).caused_by(error)
            })?;
            Ok(Some(Output::Done(done)))
        }
        "error" => Err(Error::of_event(&event.data).unwrap_or_else(|| {
            Error::unknown(200, "the stream ended with an error that cannot be parsed", None)
        })),
        _ => Ok(None),
    }
}

#[derive(Default, serde::Deserialize)]
struct Dropped {
    stdout: u64,
    stderr: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned(), id: None, end: None, encoding: None }
    }

    fn parse(name: &str, data: &str) -> Result<Option<Output>> {
        LINES.parse(event(name, data))
    }

    #[test]
    fn each_event_of_a_command_becomes_an_item() {
        assert_eq!(parse("stdout", "a\nb").unwrap(), Some(Output::Stdout("a\rb".to_owned())));
        assert_eq!(parse("stderr", "").unwrap(), Some(Output::Stderr(String::new())));
        let done = parse("done", r#"{"exitCode":null,"durationMs":5,"signal":"SIGKILL","later":1}"#).unwrap();
        assert!(
            matches!(done, Some(Output::Done(done)) if done.signal.as_deref() == Some("SIGKILL") && done.exit_code.is_none())
        );
        assert_eq!(parse("warning", "{}").unwrap(), None, "of a newer service");
    }

    #[test]
    fn dropped_bytes_of_both_channels_are_added() {
        for (data, dropped) in [
            (r#"{"stdout":3,"stderr":4}"#, 7),
            (r#"{"stdout":18446744073709551615,"stderr":1}"#, u64::MAX),
            ("?", 0),
        ] {
            assert_eq!(parse("dropped", data).unwrap(), Some(Output::Dropped(dropped)), "{data}");
        }
    }

    #[test]
    fn an_error_event_is_the_error_of_the_stream() {
        let error = parse("error", r#"{"code":"DISK_FULL","message":"full"}"#).unwrap_err();
        assert_eq!(
            (error.code(), error.status(), error.message()),
            (crate::Code::DiskFull, Some(507), "full")
        );
        for (name, data) in [("error", "?"), ("done", "{}")] {
            assert_eq!(parse(name, data).unwrap_err().code(), crate::Code::Unknown, "{name}");
        }
    }

    #[test]
    fn the_forms_differ_in_the_line_end_that_they_leave_out() {
        let data = || Event { end: Some("crlf".to_owned()), ..event("stdout", "a") };
        assert_eq!(LINES.parse(data()).unwrap(), Some(Output::Stdout("a".to_owned())));
        assert_eq!(LINES_WITH_ENDS.parse(data()).unwrap(), Some(Output::Stdout("a\r\n".to_owned())));
        assert_eq!((LINES.omitted, LINES_WITH_ENDS.omitted, BYTES.omitted), (1, 0, 0));
    }
}
