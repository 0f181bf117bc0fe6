//! The log of a build as a stream that reconnects.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use api::{BuildStep, TemplateView};
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use tokio::time::Instant;

use super::path_of;
use crate::client::Client;
use crate::execution::reattach::passes;
use crate::execution::stream::EventSource;
use crate::sse::Event;
use crate::transport::ApiCall;
use crate::{Error, Result};

/// Limit for reconnecting without success.
const LONGEST_AWAY: Duration = Duration::from_secs(120);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// An item of the log of a build.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// use futures_util::TryStreamExt;
/// use sandboxd_client::BuildOutput;
/// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04\nWORKDIR /srv").await?;
/// let all: Vec<BuildOutput> = client.template_log(accepted.id.as_str()).try_collect().await?;
/// assert!(matches!(&all[0], BuildOutput::Step(step) if step.text == "WORKDIR /srv"));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildOutput {
    /// A step begins, or its result comes from the cache.
    Step(BuildStep),
    /// A line of output.
    Stdout(String),
    Stderr(String),
    /// A remark of the service.
    Note(String),
    /// The template; always the last item. It may have failed.
    Done(Box<TemplateView>),
}

/// A stream of [`BuildOutput`], which ends after [`BuildOutput::Done`] or the first error. It reconnects for up to two minutes after a
/// lost connection, and continues after the last item.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// use futures_util::TryStreamExt;
/// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04\nWORKDIR /srv").await?;
/// let mut log = client.template_log(accepted.id.as_str());
/// while let Some(output) = log.try_next().await? {
///     println!("{output:?}");
/// }
/// # Ok(()) });
/// ```
pub struct BuildLog {
    events: BoxStream<'static, Result<BuildOutput>>,
}

impl Client {
    /// Streams the log of a build from its start, and new items until the build is over.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let accepted = client.build_template("web").dockerfile("FROM ubuntu:24.04").await?;
    /// let template = client.template_log(accepted.id.as_str()).done().await?;
    /// assert!(template.state.is_final());
    /// # Ok(()) });
    /// ```
    pub fn template_log(&self, id: &str) -> BuildLog {
        let path = path_of(id, "/logs");
        let begin = LogState { client: self.clone(), path, last_id: None, source: None, over: false };
        let events = try_unfold(begin, |mut state| async move {
            let output = state.next().await?;
            Ok(output.map(|output| (output, state)))
        });
        BuildLog { events: events.boxed() }
    }
}

impl BuildLog {
    /// Reads to the end and returns the template, which may have failed.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let accepted = client.build_template("web").dockerfile("FROM missing:1").await?;
    /// let template = client.template_log(accepted.id.as_str()).done().await?;
    /// assert_eq!(template.error.unwrap().line, Some(1));
    /// # Ok(()) });
    /// ```
    pub async fn done(mut self) -> Result<TemplateView> {
        while let Some(output) = self.events.next().await {
            if let BuildOutput::Done(template) = output? {
                return Ok(*template);
            }
        }
        Err(Error::network("the log ended before the build did"))
    }
}

impl Stream for BuildLog {
    type Item = Result<BuildOutput>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().events.as_mut().poll_next(cx)
    }
}

struct LogState {
    client: Client,
    path: String,
    last_id: Option<String>,
    source: Option<EventSource>,
    over: bool,
}

impl LogState {
    async fn next(&mut self) -> Result<Option<BuildOutput>> {
        let mut away: Option<Instant> = None;
        let mut wait = FIRST_WAIT;
        while !self.over {
            let error = match self.try_next().await {
                Ok(output) => return Ok(Some(output)),
                Err(error) => error,
            };
            self.source = None;
            let since = *away.get_or_insert_with(Instant::now);
            if !passes(&error) || since.elapsed() > LONGEST_AWAY {
                self.over = true;
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(None)
    }

    async fn try_next(&mut self) -> Result<BuildOutput> {
        loop {
            let source = match &mut self.source {
                Some(source) => source,
                None => {
                    let opened = self.open().await?;
                    self.source.insert(opened)
                }
            };
            let event = source.next().await?;
            let event = event.ok_or_else(|| Error::network("the log ended before the build did"))?;
            let id = event.id.clone();
            let Some(output) = parse(event)? else { continue };
            self.over = matches!(output, BuildOutput::Done(_));
            self.last_id = id;
            return Ok(output);
        }
    }

    async fn open(&self) -> Result<EventSource> {
        let mut call = ApiCall::get(&self.path).accept("text/event-stream");
        if let Some(last_id) = &self.last_id {
            call = call.after(last_id)?;
        }
        Ok(EventSource::new(self.client.transport().stream(call).await?))
    }
}

/// `None` for an event that this version does not know.
fn parse(event: Event) -> Result<Option<BuildOutput>> {
    let invalid = |error| Error::unknown(200, "an event of the log cannot be parsed", None).caused_by(error);
    Ok(match event.name.as_str() {
        "step" => Some(BuildOutput::Step(serde_json::from_str(&event.data).map_err(invalid)?)),
        "stdout" => Some(BuildOutput::Stdout(event.data)),
        "stderr" => Some(BuildOutput::Stderr(event.data)),
        "note" => Some(BuildOutput::Note(event.data)),
        "done" => Some(BuildOutput::Done(Box::new(serde_json::from_str(&event.data).map_err(invalid)?))),
        "error" => {
            return Err(Error::of_event(&event.data).unwrap_or_else(|| {
                Error::unknown(200, "the log ended with an error that cannot be parsed", None)
            }));
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, data: &str) -> Result<Option<BuildOutput>> {
        let (name, data) = (name.to_owned(), data.to_owned());
        parse(Event { name, data, id: None, end: None, encoding: None })
    }

    #[test]
    fn each_event_of_a_build_becomes_an_item() {
        assert_eq!(read("stdout", "a").unwrap(), Some(BuildOutput::Stdout("a".to_owned())));
        assert_eq!(read("stderr", "b").unwrap(), Some(BuildOutput::Stderr("b".to_owned())));
        assert_eq!(read("note", "c").unwrap(), Some(BuildOutput::Note("c".to_owned())));
        let step = read("step", r#"{"number":1,"total":2,"line":3,"text":"RUN x","cached":true}"#).unwrap();
        let expected = BuildStep { number: 1, total: 2, line: 3, text: "RUN x".to_owned(), cached: true };
        assert_eq!(step, Some(BuildOutput::Step(expected)));
        assert_eq!(read("progress", "?").unwrap(), None, "of a newer service");
    }

    #[test]
    fn a_damaged_log_is_an_error_and_not_an_end() {
        for (name, data) in [("step", "{}"), ("done", "{}"), ("error", "?")] {
            assert_eq!(read(name, data).unwrap_err().code(), crate::Code::Unknown, "{name}");
        }
        let gone = read("error", r#"{"code":"TEMPLATE_NOT_FOUND","message":"m"}"#).unwrap_err();
        assert_eq!((gone.code(), gone.status()), (crate::Code::TemplateNotFound, Some(404)));
    }
}
