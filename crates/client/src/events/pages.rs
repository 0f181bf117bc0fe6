//! Pages of events, in either order, as one stream.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::{EventId, RuntimeEvent};
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};

use super::{Events, known};
use crate::Result;

/// All recorded events, fetched on demand.
pub fn pages(events: Events) -> impl Stream<Item = Result<RuntimeEvent>> + Send + 'static {
    let begin = Pages { last_fetched: events.after, events, more: true, page: VecDeque::new() };
    try_unfold(begin, |mut pages| async move {
        loop {
            if let Some(event) = pages.page.pop_front() {
                return Ok(Some((event, pages)));
            }
            if !pages.more {
                return Ok(None);
            }
            pages.fetch_page().await?;
        }
    })
}

struct Pages {
    events: Events,
    /// The last fetched event. With the oldest first, pages continue after it.
    last_fetched: Option<EventId>,
    more: bool,
    page: VecDeque<RuntimeEvent>,
}

impl Pages {
    async fn fetch_page(&mut self) -> Result<()> {
        let (after, before) = if self.events.newest_first {
            (self.events.after, self.last_fetched.filter(|_| !self.is_first()))
        } else {
            (self.last_fetched, None)
        };
        let page = self.events.fetch(after, before, 0).await?;
        let last = page.data.last().and_then(|event| event["id"].as_str()?.parse().ok());
        // An empty page that announces more would cause an endless loop.
        self.more = page.pagination.has_more && last.is_some();
        self.last_fetched = last.or(self.last_fetched);
        self.page = page.data.into_iter().filter_map(known).collect();
        Ok(())
    }

    fn is_first(&self) -> bool {
        self.last_fetched == self.events.after
    }
}

/// A stream of events. It ends after the first error.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// # client.create("ubuntu:24.04").await?;
/// use futures_util::StreamExt;
/// let mut events: sandboxd_client::EventStream = client.events().stream();
/// assert_eq!(events.next().await.unwrap()?.kind, sandboxd_client::EventKind::SandboxCreated);
/// # Ok(()) });
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct EventStream {
    events: BoxStream<'static, Result<RuntimeEvent>>,
}

impl EventStream {
    pub(crate) fn of(events: impl Stream<Item = Result<RuntimeEvent>> + Send + 'static) -> Self {
        Self { events: events.boxed() }
    }
}

impl Stream for EventStream {
    type Item = Result<RuntimeEvent>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().events.as_mut().poll_next(cx)
    }
}
