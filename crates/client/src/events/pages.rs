//! Pages of events, in either order, as one stream.

use api::{EventId, RuntimeEvent};

use super::{Events, known};
use crate::Result;
use crate::pager::item_stream::{ItemStream, PageSource};

/// The recorded events of a query. Their pages are named by the last event before them, so that changes of the list do not matter.
pub struct EventPages {
    events: Events,
    /// The last fetched event. With the oldest first, pages continue after it.
    last_fetched: Option<EventId>,
    more: bool,
}

impl EventPages {
    /// Begins at the start of the list.
    pub fn new(events: Events) -> Self {
        Self { last_fetched: events.after, events, more: true }
    }

    fn is_first(&self) -> bool {
        self.last_fetched == self.events.after
    }
}

impl PageSource for EventPages {
    type Item = RuntimeEvent;

    async fn next_page(&mut self) -> Result<Option<Vec<RuntimeEvent>>> {
        if !self.more {
            return Ok(None);
        }
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
        Ok(Some(page.data.into_iter().filter_map(known).collect()))
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
pub type EventStream = ItemStream<RuntimeEvent>;
