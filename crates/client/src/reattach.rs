//! The output of a detached execution as a stream that outlives its connections.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use tokio::time::Instant;

use crate::detached::Detached;
use crate::stream::{Output, Source, understood};
use crate::transport::Call;
use crate::{Code, Error, Result};

/// How long a service may be away before that is an error.
const LONGEST_AWAY: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The id of the last event.
const END: &str = "end";

/// A stream of [`Output`], which ends after [`Output::Done`] or the first error. A connection that is lost is made again, for two
/// minutes without one: it goes on behind the last line that came, so that none is missed and none comes twice.
///
/// ```
/// # sandboxd::testing::run(async |service| {
/// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
/// # let sandbox = client.create("ubuntu:24.04").await?;
/// use futures_util::TryStreamExt;
/// let mut output = sandbox.start("echo hi").await?.follow();
/// while let Some(output) = output.try_next().await? {
///     println!("{output:?}");
/// }
/// # Ok(()) });
/// ```
pub struct Following {
    events: BoxStream<'static, Result<Output>>,
    place: Place,
}

type Place = Arc<Mutex<Option<String>>>;

impl Following {
    pub(crate) fn new(execution: Detached, place: Option<String>, line_ends: bool) -> Self {
        let place: Place = Arc::new(Mutex::new(place));
        let begin = State { execution, line_ends, place: Arc::clone(&place), source: None, over: false };
        let events = try_unfold(begin, |mut state| async move {
            let output = state.next().await?;
            Ok(output.map(|output| (output, state)))
        });
        Self { events: events.boxed(), place }
    }

    /// How far it is, for [`Detached::follow_from`]: behind the line that came last. Nothing before the first.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.start("echo hi").await?.follow();
    /// assert_eq!(output.place(), None);
    /// output.try_next().await?;
    /// assert_eq!(output.place().as_deref(), Some("3.0"));
    /// # Ok(()) });
    /// ```
    pub fn place(&self) -> Option<String> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Detached {
    /// Its output, line by line from the beginning, and how it ends.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use futures_util::TryStreamExt;
    /// let mut output = sandbox.start("echo hi").await?.follow();
    /// assert_eq!(output.try_next().await?, Some(sandboxd_client::Output::Stdout("hi".into())));
    /// # Ok(()) });
    /// ```
    pub fn follow(&self) -> Following {
        Following::new(self.clone(), None, false)
    }

    /// As [`follow`](Self::follow), but its lines have the ends that the command wrote: `\n`, `\r\n`, or none where a long line goes on
    /// in what comes next, and where the output ended without one. Put together they are what it wrote, with U+FFFD for what is no
    /// UTF-8.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.execute("cat").stdin("no end").detached().await?;
    /// let mut output = command.follow_with_line_ends();
    /// assert_eq!(output.try_next().await?, Some(sandboxd_client::Output::Stdout("no end".into())));
    /// # Ok(()) });
    /// ```
    pub fn follow_with_line_ends(&self) -> Following {
        Following::new(self.clone(), None, true)
    }

    /// As [`follow`](Self::follow), behind a [place](Following::place) that somebody came to before.
    ///
    /// ```
    /// # sandboxd::testing::run(async |service| {
    /// # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use futures_util::TryStreamExt;
    /// let command = sandbox.start("echo one; echo two").await?;
    /// let mut output = command.follow();
    /// output.try_next().await?;
    /// let rest: Vec<_> = command.follow_from(output.place().unwrap()).try_collect().await?;
    /// assert_eq!(rest[0], sandboxd_client::Output::Stdout("two".into()));
    /// # Ok(()) });
    /// ```
    pub fn follow_from(&self, place: impl Into<String>) -> Following {
        Following::new(self.clone(), Some(place.into()), false)
    }
}

impl Stream for Following {
    type Item = Result<Output>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().events.as_mut().poll_next(cx)
    }
}

struct State {
    execution: Detached,
    line_ends: bool,
    place: Place,
    source: Option<Source>,
    over: bool,
}

impl State {
    async fn next(&mut self) -> Result<Option<Output>> {
        let mut away: Option<Instant> = None;
        let mut wait = FIRST_WAIT;
        while !self.over {
            let error = match self.try_next().await {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            self.source = None;
            let since = *away.get_or_insert_with(Instant::now);
            if !passes(&error) || since.elapsed() > LONGEST_AWAY {
                self.over = true;
                return Err(self.execution.sandbox().failed(error));
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(None)
    }

    async fn try_next(&mut self) -> Result<Option<Output>> {
        loop {
            let source = match &mut self.source {
                Some(source) => source,
                None => match self.open().await? {
                    Some(source) => self.source.insert(source),
                    None => return Ok(None),
                },
            };
            let event = source.next().await?;
            let event = event.ok_or_else(|| Error::network("the stream ended before the execution did"))?;
            let id = event.id.clone();
            // An error that will pass tells of no output: the place stays.
            let Some(output) = understood(event, self.line_ends)? else { continue };
            self.over = matches!(output, Output::Done(_));
            *self.place.lock().unwrap_or_else(PoisonError::into_inner) = id;
            return Ok(Some(output));
        }
    }

    /// Nothing where there is no more.
    async fn open(&mut self) -> Result<Option<Source>> {
        let place = self.place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let what = if self.line_ends { "/output?lineEnds=true" } else { "/output" };
        let mut call = Call::get(self.execution.path(what)).accept("text/event-stream");
        if let Some(place) = &place {
            call = call.after(place)?;
        }
        let response = self.execution.sandbox().client().transport().stream(call).await?;
        if place.as_deref() == Some(END) && response.status().as_u16() == 204 {
            self.over = true;
            return Ok(None);
        }
        Ok(Some(Source::new(response)))
    }
}

/// Whether it may work again in a while: the execution goes on without us.
pub fn passes(error: &Error) -> bool {
    matches!(
        error.code(),
        Code::NetworkError | Code::ResourceExhausted | Code::RateLimited | Code::InternalError
    )
}

#[cfg(test)]
mod tests {
    use futures_util::TryStreamExt;

    use super::*;
    use crate::fixture::{Fixture, Trouble};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lost_connection_is_made_again_behind_the_last_line() {
        let fixture = Fixture::start().unwrap();
        let client = fixture.builder().retries(0).build().unwrap();
        let command = client.create("img").await.unwrap().start("echo one; echo two; exit 4").await.unwrap();
        let mut output = command.follow();
        fixture.trouble(Trouble::LostAnswer);
        fixture.trouble(Trouble::Status { status: 503, code: "RESOURCE_EXHAUSTED", retry_after_s: 0 });
        assert_eq!(output.try_next().await.unwrap(), Some(Output::Stdout("one".into())));
        let place = output.place().unwrap();
        let mut rest = command.follow_from(place.as_str());
        fixture.trouble(Trouble::LostAnswer);
        assert_eq!(rest.try_next().await.unwrap(), Some(Output::Stdout("two".into())));
        let last = fixture.seen().pop().unwrap();
        assert_eq!(last.headers["last-event-id"], place.as_str());
        let Some(Output::Done(done)) = rest.try_next().await.unwrap() else { panic!() };
        assert_eq!((done.exit_code, rest.try_next().await.unwrap()), (Some(4), None));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_does_not_pass_is_an_error_at_once() {
        let fixture = Fixture::start().unwrap();
        let client = fixture.client().unwrap();
        let sandbox = client.create("img").await.unwrap();
        let nobody = sandbox.execution("ex_00000000000000000000").unwrap();
        let error = nobody.follow().try_next().await.unwrap_err();
        assert_eq!(error.code(), Code::ExecutionNotFound);
        assert_eq!(nobody.attach().await.map(drop).unwrap_err().code(), Code::ExecutionNotFound);
    }
}
