//! A stream of events that outlives its connections. The place in it is the last event that was handed out, or what the service said
//! of the place since; a new connection goes on from there.
//!
//! ```text
//! connected ──(bytes)──> events ──> connected
//!     │ broken off, or told to come back
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
use crate::retry::{Policy, wait};
use crate::sse::{Event, Parser};
use crate::transport::Call;
use crate::{Code, Error, Result};

/// The service sends a comment every 15 s when nothing happens.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// Who ends connections sooner is not come back to at once.
const SHORT: Duration = Duration::from_secs(1);
/// Without one good connection.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

impl Events {
    /// What happens from now on, or from [`after`](Self::after) on. Answers when the service is listening, so what happens from here is in it.
    ///
    /// Broken off, it connects again by itself, and goes on after the last event that it told: none is missing and none comes
    /// twice, also when the daemon is killed. The stream of a sandbox ends with the sandbox, that of an account never. It ends
    /// with an error where coming back is refused, or has failed for five minutes.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
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

/// A stream that is followed.
struct Following {
    events: Events,
    place: Option<EventId>,
    stage: Stage,
    /// Came whole and wait to be handed out.
    waiting: VecDeque<Event>,
    connected_at: Instant,
    /// Connections one after the other that broke off at once.
    short: u32,
}

enum Stage {
    Connected(Box<Connection>),
    Broken,
    /// The sandbox is gone.
    Rest(EventStream),
    Over,
}

struct Connection {
    body: Incoming,
    parser: Parser,
}

impl Following {
    /// Answers when the service has said where the stream begins: what happens from then on is in it.
    async fn begin(events: Events) -> Result<Self> {
        let place = events.place();
        let connection = connect(&events, place).await?;
        let stage = Stage::Connected(Box::new(connection));
        let (waiting, connected_at) = (VecDeque::new(), Instant::now());
        let mut following = Self { events, place, stage, waiting, connected_at, short: 0 };
        while following.place.is_none() && following.waiting.is_empty() {
            match following.read().await {
                Ok(true) => {}
                Ok(false) => return Err(broken_off()),
                Err(error) => return Err(error),
            }
        }
        Ok(following)
    }

    /// `None` at its end.
    async fn next(&mut self) -> Result<Option<RuntimeEvent>> {
        loop {
            while let Some(event) = self.waiting.pop_front() {
                if let Some(event) = self.understood(&event)? {
                    return Ok(Some(event));
                }
            }
            match &mut self.stage {
                Stage::Over => return Ok(None),
                Stage::Rest(rest) => {
                    let next = rest.next().await.transpose()?;
                    if next.is_none() {
                        self.stage = Stage::Over;
                    }
                    return Ok(next);
                }
                Stage::Broken => self.come_back().await?,
                Stage::Connected(_) => match self.read().await {
                    Ok(true) => {}
                    Ok(false) => self.stage = Stage::Broken,
                    Err(error) if is_passing(&error) => self.stage = Stage::Broken,
                    Err(error) => return Err(self.end(error)),
                },
            }
        }
    }

    /// An event that was not told yet. What the service ends a stream with decides how it goes on.
    fn understood(&mut self, event: &Event) -> Result<Option<RuntimeEvent>> {
        if event.name == "error" {
            let error = Error::of_event(&event.data)
                .unwrap_or_else(|| Error::network("the stream ended with an error that is not understood"));
            if !is_passing(&error) {
                return Err(self.end(error));
            }
            self.stage = Stage::Broken;
            return Ok(None);
        }
        let id: Option<EventId> = event.id.as_deref().and_then(|id| id.parse().ok());
        if id.is_some_and(|id| self.place.is_some_and(|place| id <= place)) {
            return Ok(None);
        }
        self.place = id.or(self.place);
        Ok(serde_json::from_str(&event.data).ok().and_then(known))
    }

    /// The next bytes of the connection; false at its end.
    async fn read(&mut self) -> Result<bool> {
        let Stage::Connected(connection) = &mut self.stage else { return Ok(false) };
        let frame = timeout(LONGEST_SILENCE, connection.body.frame()).await;
        let frame = frame.map_err(|_| {
            Error::network(format!("nothing came for {} s, not even a comment", LONGEST_SILENCE.as_secs()))
        })?;
        let Some(frame) = frame else { return Ok(false) };
        let frame = frame.map_err(|error| Error::network(format!("the stream broke off: {error}")))?;
        if let Some(data) = frame.data_ref() {
            let parsed = connection.parser.push(data, &mut self.waiting);
            parsed.map_err(|error| Error::unknown(200, error.to_string(), None))?;
            // What waits is told first, and moves the place itself.
            if self.waiting.is_empty() {
                let said = connection.parser.last_id().and_then(|id| id.parse().ok());
                self.place = self.place.max(said);
            }
        }
        Ok(true)
    }

    async fn come_back(&mut self) -> Result<()> {
        let begin = Instant::now();
        let policy = Policy { retries: u32::MAX, patience: GIVE_UP_AFTER };
        self.short = if self.connected_at.elapsed() < SHORT { self.short.saturating_add(1) } else { 0 };
        if self.short > 0 {
            let pause = wait(policy, self.short, None, rand::random());
            sleep(pause.unwrap_or_default()).await;
        }
        for attempt in 1.. {
            match connect(&self.events, self.place).await {
                Ok(connection) => {
                    (self.stage, self.connected_at) =
                        (Stage::Connected(Box::new(connection)), Instant::now());
                    return Ok(());
                }
                Err(error) if error.code() == Code::SandboxNotFound && error.terminated().is_some() => {
                    let place = self.place.unwrap_or(EventId(0));
                    self.stage = Stage::Rest(self.events.rest(place));
                    return Ok(());
                }
                Err(error) => {
                    let pause = wait(policy, attempt, error.retry_after(), rand::random());
                    let over = pause.is_none_or(|pause| begin.elapsed() + pause > GIVE_UP_AFTER);
                    if over || !is_passing(&error) {
                        return Err(self.end(error));
                    }
                    sleep(pause.unwrap_or_default()).await;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, error: Error) -> Error {
        self.stage = Stage::Over;
        error
    }
}

fn is_passing(error: &Error) -> bool {
    // What no certificate or URL will ever mend is told at the beginning already.
    error.retryable()
}

fn broken_off() -> Error {
    Error::network("the stream of events ended")
}

async fn connect(events: &Events, place: Option<EventId>) -> Result<Connection> {
    let mut call = Call::get(events.live()).accept("text/event-stream");
    if let Some(place) = place {
        call = call.header("last-event-id", &place.to_string())?;
    }
    let response = events.client().transport().stream(call).await?;
    Ok(Connection { body: response.into_body(), parser: Parser::new() })
}
