//! An event stream that reconnects. Its position is the last event that was returned, or a later id that the service sent; a new
//! connection continues after it.
//!
//! ```text
//! connected ──(bytes)──> events ──> connected
//!     │ interrupted, or ended by the service with a request to reconnect
//!     └──> waiting ──> connected | given up | the sandbox is gone: the rest from the list, then the end
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use api::{EventId, RuntimeEvent};
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::{Instant, sleep, timeout};

use crate::events::{EventStream, Events, known};
use crate::sse::{Event, Parser};
use crate::transport::ApiCall;
use crate::transport::retry::{Policy, wait};
use crate::{Code, Error, Result};

/// The service sends a comment every 15 s on an idle stream.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// A connection that ends sooner counts as a failure, to avoid reconnecting in a loop.
const SHORT: Duration = Duration::from_secs(1);
/// Limit for reconnecting without success.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

impl Events {
    /// Streams new events, or those after [`after`](Self::after). Returns once the subscription is active, so no later event is missed.
    ///
    /// The stream reconnects after failures, including restarts of the daemon, and continues after the last event: none is missed or
    /// repeated. The stream of a sandbox ends when the sandbox is terminated; that of an account does not end. It ends with an error if
    /// reconnecting is refused or fails for five minutes.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// let mut events = sandbox.events().follow().await?;
    /// sandbox.pause().await?;
    /// let event = events.try_next().await?.unwrap();
    /// assert_eq!(event.kind, sandboxd_client::EventKind::SandboxPaused);
    /// # Ok(()) });
    /// ```
    pub async fn follow(self) -> Result<EventStream> {
        let following = Following::begin(self).await?;
        Ok(EventStream::of(try_unfold(following, |mut following| async move {
            Ok(following.next().await?.map(|event| (event, following)))
        })))
    }
}

/// The state of a followed stream.
struct Following {
    events: Events,
    last_event: Option<EventId>,
    stage: FollowStage,
    /// Received events that are not yet returned.
    waiting: VecDeque<Event>,
    connected_at: Instant,
    /// Consecutive connections that ended early.
    short: u32,
}

enum FollowStage {
    Connected(Box<Connection>),
    Broken,
    /// The sandbox is terminated.
    Recorded(EventStream),
    Ended,
}

struct Connection {
    body: Incoming,
    parser: Parser,
}

impl Following {
    /// Returns once the service has sent the start position: all later events are delivered.
    async fn begin(events: Events) -> Result<Self> {
        let last_event = events.last_event();
        let connection = connect(&events, last_event).await?;
        let stage = FollowStage::Connected(Box::new(connection));
        let (waiting, connected_at) = (VecDeque::new(), Instant::now());
        let mut following = Self { events, last_event, stage, waiting, connected_at, short: 0 };
        while following.last_event.is_none() && following.waiting.is_empty() {
            match following.read().await {
                Ok(true) => {}
                Ok(false) => return Err(broken_off()),
                Err(error) => return Err(error),
            }
        }
        Ok(following)
    }

    /// `None` at the end.
    async fn next(&mut self) -> Result<Option<RuntimeEvent>> {
        loop {
            while let Some(event) = self.waiting.pop_front() {
                if let Some(event) = self.parse_event(&event)? {
                    return Ok(Some(event));
                }
            }
            match &mut self.stage {
                FollowStage::Ended => return Ok(None),
                FollowStage::Recorded(events) => {
                    let next = events.next().await.transpose()?;
                    if next.is_none() {
                        self.stage = FollowStage::Ended;
                    }
                    return Ok(next);
                }
                FollowStage::Broken => self.reconnect().await?,
                FollowStage::Connected(_) => match self.read().await {
                    Ok(true) => {}
                    Ok(false) => self.stage = FollowStage::Broken,
                    Err(error) if is_passing(&error) => self.stage = FollowStage::Broken,
                    Err(error) => return Err(self.end(error)),
                },
            }
        }
    }

    /// The next event that was not yet returned. The final event of a connection decides how the stream continues.
    fn parse_event(&mut self, event: &Event) -> Result<Option<RuntimeEvent>> {
        if event.name == "error" {
            let error = Error::of_event(&event.data)
                .unwrap_or_else(|| Error::network("the stream ended with an error that cannot be parsed"));
            if !is_passing(&error) {
                return Err(self.end(error));
            }
            self.stage = FollowStage::Broken;
            return Ok(None);
        }
        let id: Option<EventId> = event.id.as_deref().and_then(|id| id.parse().ok());
        if id.is_some_and(|id| self.last_event.is_some_and(|last_event| id <= last_event)) {
            return Ok(None);
        }
        self.last_event = id.or(self.last_event);
        Ok(serde_json::from_str(&event.data).ok().and_then(known))
    }

    /// Reads from the connection; false at its end.
    async fn read(&mut self) -> Result<bool> {
        let FollowStage::Connected(connection) = &mut self.stage else { return Ok(false) };
        let frame = timeout(LONGEST_SILENCE, connection.body.frame()).await;
        let frame = frame.map_err(|_| {
            Error::network(format!("no data for {} s, not even a comment", LONGEST_SILENCE.as_secs()))
        })?;
        let Some(frame) = frame else { return Ok(false) };
        let frame = frame.map_err(|error| Error::network("the stream was interrupted").caused_by(error))?;
        if let Some(data) = frame.data_ref() {
            let parsed = connection.parser.push(data, &mut self.waiting);
            parsed.map_err(|error| Error::unknown(200, error.to_string(), None).with_source(error))?;
            // Queued events are returned first, and advance the position.
            if self.waiting.is_empty() {
                let last_id = connection.parser.last_id().and_then(|id| id.parse().ok());
                self.last_event = self.last_event.max(last_id);
            }
        }
        Ok(true)
    }

    async fn reconnect(&mut self) -> Result<()> {
        let begin = Instant::now();
        let policy = Policy { retries: u32::MAX, max_retry_wait: GIVE_UP_AFTER };
        self.short = if self.connected_at.elapsed() < SHORT { self.short.saturating_add(1) } else { 0 };
        if self.short > 0 {
            let pause = wait(policy, self.short, None, rand::random());
            sleep(pause.unwrap_or_default()).await;
        }
        for attempt in 1.. {
            match connect(&self.events, self.last_event).await {
                Ok(connection) => {
                    (self.stage, self.connected_at) =
                        (FollowStage::Connected(Box::new(connection)), Instant::now());
                    return Ok(());
                }
                Err(error) if error.code() == Code::SandboxNotFound && error.terminated().is_some() => {
                    let last_event = self.last_event.unwrap_or(EventId(0));
                    self.stage = FollowStage::Recorded(self.events.recorded_after(last_event));
                    return Ok(());
                }
                Err(error) => {
                    let pause = wait(policy, attempt, error.retry_after(), rand::random());
                    let gives_up = pause.is_none_or(|pause| begin.elapsed() + pause > GIVE_UP_AFTER);
                    if gives_up || !is_passing(&error) {
                        return Err(self.end(error));
                    }
                    sleep(pause.unwrap_or_default()).await;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, error: Error) -> Error {
        self.stage = FollowStage::Ended;
        error
    }
}

fn is_passing(error: &Error) -> bool {
    // Permanent failures, such as an untrusted certificate, were reported by the first connection.
    error.retryable()
}

fn broken_off() -> Error {
    Error::network("the stream of events ended")
}

async fn connect(events: &Events, last_event: Option<EventId>) -> Result<Connection> {
    let mut call = ApiCall::get(events.live()).accept("text/event-stream");
    if let Some(last_event) = last_event {
        call = call.header("last-event-id", &last_event.to_string())?;
    }
    let response = events.client().transport().stream(call).await?;
    Ok(Connection { body: response.into_body(), parser: Parser::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn following(last_event: Option<u64>) -> Following {
        let client = crate::Client::builder().url("http://127.0.0.1:9").key("any").build().unwrap();
        Following {
            events: client.events(),
            last_event: last_event.map(EventId),
            stage: FollowStage::Broken,
            waiting: VecDeque::new(),
            connected_at: Instant::now(),
            short: 0,
        }
    }

    fn event(name: &str, id: Option<u64>, data: &str) -> Event {
        let id = id.map(|id| EventId(id).to_string());
        Event { name: name.to_owned(), data: data.to_owned(), id, end: None, encoding: None }
    }

    fn recorded(id: u64, kind: &str) -> Event {
        let data = serde_json::json!({
            "id": EventId(id).to_string(), "timestamp": "2023-11-14T22:13:20Z", "type": kind,
            "sandboxId": "sb_00000000", "runId": "", "data": {},
        });
        event(kind, Some(id), &data.to_string())
    }

    #[tokio::test]
    async fn an_event_that_was_returned_before_a_reconnect_is_not_repeated() {
        let mut following = following(Some(5));
        let mut parse =
            |id| following.parse_event(&recorded(id, "exec.started")).unwrap().map(|event| event.id.0);
        assert_eq!(
            [parse(4), parse(5), parse(6), parse(6), parse(8), parse(7)],
            [None, None, Some(6), None, Some(8), None]
        );
        assert_eq!(following.last_event, Some(EventId(8)));
    }

    #[tokio::test]
    async fn an_event_of_a_newer_service_is_skipped_and_advances_the_position() {
        let mut following = following(Some(5));
        assert_eq!(following.parse_event(&recorded(6, "exec.burnt")).unwrap(), None);
        assert_eq!(following.parse_event(&event("exec.started", Some(7), "{")).unwrap(), None);
        assert_eq!(following.last_event, Some(EventId(7)));
        assert_eq!(following.parse_event(&event("exec.started", None, "{}")).unwrap(), None);
        assert_eq!(following.last_event, Some(EventId(7)), "an event without an id has no position");
    }

    #[tokio::test]
    async fn a_passing_error_breaks_the_connection_and_another_one_ends_the_stream() {
        for (code, is_passing) in [
            ("INTERNAL_ERROR", true),
            ("RESOURCE_EXHAUSTED", true),
            ("RATE_LIMITED", true),
            ("SANDBOX_NOT_FOUND", false),
            ("UNAUTHORIZED", false),
            ("BURNT", false),
        ] {
            let mut following = following(Some(5));
            following.stage = FollowStage::Ended;
            let data = serde_json::json!({ "code": code, "message": "m" }).to_string();
            let parsed = following.parse_event(&event("error", None, &data));
            assert_eq!(parsed.is_ok(), is_passing, "{code}");
            assert_eq!(matches!(following.stage, FollowStage::Broken), is_passing, "{code}");
            assert_eq!(following.last_event, Some(EventId(5)));
        }
        let mut following = following(None);
        assert!(following.parse_event(&event("error", None, "?")).is_ok(), "taken for a broken connection");
        assert!(matches!(following.stage, FollowStage::Broken));
    }

    #[tokio::test]
    async fn queued_events_are_returned_before_the_connection_is_made_again() {
        let mut following = following(Some(5));
        following.waiting.extend([recorded(5, "exec.started"), recorded(6, "exec.started")]);
        following.stage = FollowStage::Ended;
        assert_eq!(following.next().await.unwrap().map(|event| event.id), Some(EventId(6)));
        assert!(following.next().await.unwrap().is_none());
    }
}
