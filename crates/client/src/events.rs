//! Events of sandboxes and runs, as recorded by the service: lists over pages, and live streams (`follow.rs`).

pub mod follow;
mod pages;

use api::{EventId, EventKind, EventList, RuntimeEvent, SandboxId, Timestamp};
use serde_json::Value;

use crate::client::Client;
use crate::pager::item_stream::ItemStream;
use crate::pager::{LARGEST_PAGE, Page, PageRange};
use crate::sandbox::Sandbox;
use crate::transport::{ApiCall, encoded};
use crate::{Code, Result};

use pages::EventPages;
pub use pages::EventStream;

/// The path of the events of the account.
const ALL_EVENTS: &str = "/v1/events";

impl Client {
    /// Queries the events of all sandboxes of the account.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # let sandbox = client.create("ubuntu:24.04").await?;
    /// use futures_util::TryStreamExt;
    /// let mut events = client.events().kind(sandboxd_client::EventKind::SandboxCreated).stream();
    /// while let Some(event) = events.try_next().await? {
    ///     println!("{} {:?}", event.timestamp, event.sandbox_id);
    /// }
    /// # Ok(()) });
    /// ```
    pub fn events(&self) -> Events {
        Events::new(self.clone(), None)
    }
}

impl Sandbox {
    /// Queries the events of this sandbox, also after its termination, until the end of the retention time.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// use futures_util::TryStreamExt;
    /// sandbox.terminate().await?;
    /// let events: Vec<_> = sandbox.events().stream().try_collect().await?;
    /// assert_eq!(events.last().unwrap().kind, sandboxd_client::EventKind::SandboxTerminated);
    /// # Ok(()) });
    /// ```
    pub fn events(&self) -> Events {
        Events::new(self.client().clone(), Some(self.id().clone()))
    }
}

/// A query for events. [`stream`](Self::stream) lists recorded events; [`follow`](Self::follow) delivers new ones.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// # client.create("ubuntu:24.04").await?;
/// let page = client.events().kinds("sandbox.*").page_size(10).page(0).await?;
/// assert_eq!(page.pagination.total, 2);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Events {
    client: Client,
    sandbox: Option<SandboxId>,
    kinds: Vec<String>,
    run: Option<String>,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    after: Option<EventId>,
    newest_first: bool,
    page_size: u32,
}

impl Events {
    fn new(client: Client, sandbox: Option<SandboxId>) -> Self {
        Self {
            client,
            sandbox,
            kinds: Vec::new(),
            run: None,
            since: None,
            until: None,
            after: None,
            newest_first: false,
            page_size: LARGEST_PAGE,
        }
    }

    /// Filters by kind. Several filters are alternatives.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let page = client.events().kind(sandboxd_client::EventKind::ExecCompleted).page(0).await?;
    /// assert_eq!(page.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn kind(self, kind: EventKind) -> Self {
        self.kinds(kind.as_str())
    }

    /// Filters by name, or by group, such as `exec.*`.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let page = client.events().kinds("exec.*").kinds("file.*").page(0).await?;
    /// assert_eq!(page.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn kinds(mut self, kinds: impl Into<String>) -> Self {
        self.kinds.push(kinds.into());
        self
    }

    /// Filters by run.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let page = client.events().run("nightly-17").page(0).await?;
    /// assert_eq!(page.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn run(mut self, id: impl Into<String>) -> Self {
        self.run = Some(id.into());
        self
    }

    /// Returns only events at or after this time.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let page = client.events().since("2100-01-01T00:00:00Z".parse()?).page(0).await?;
    /// assert_eq!(page.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn since(mut self, time: Timestamp) -> Self {
        self.since = Some(time);
        self
    }

    /// Returns only events before this time.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let page = client.events().until("2000-01-01T00:00:00Z".parse()?).page(0).await?;
    /// assert_eq!(page.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn until(mut self, time: Timestamp) -> Self {
        self.until = Some(time);
        self
    }

    /// Returns only events after this one.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # client.create("ubuntu:24.04").await?;
    /// let seen = client.events().page(0).await?.data[0].id;
    /// let page = client.events().after(seen).page(0).await?;
    /// assert!(page.data[0].id > seen);
    /// # Ok(()) });
    /// ```
    pub fn after(mut self, seen: EventId) -> Self {
        self.after = Some(seen);
        self
    }

    /// Lists the newest events first. By default the oldest come first.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # client.create("ubuntu:24.04").await?;
    /// let page = client.events().newest_first().page(0).await?;
    /// assert_eq!(page.data[0].kind, sandboxd_client::EventKind::SandboxStarted);
    /// # Ok(()) });
    /// ```
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Sets the number of items per request: 1 to 100, by default 100.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # client.create("ubuntu:24.04").await?;
    /// let page = client.events().page_size(1).page(0).await?;
    /// assert!(page.data.len() == 1 && page.pagination.has_more);
    /// # Ok(()) });
    /// ```
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.page_size = page_size;
        self
    }

    /// Returns one page, starting at `offset`. Events of kinds that this version does not know are omitted.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # client.create("ubuntu:24.04").await?;
    /// let page = client.events().page(1).await?;
    /// assert_eq!((page.data.len(), page.pagination.total), (1, 2));
    /// # Ok(()) });
    /// ```
    pub async fn page(&self, offset: u64) -> Result<EventList> {
        let page = self.fetch(self.after, None, offset).await?;
        let data = page.data.into_iter().filter_map(known).collect();
        Ok(EventList { data, pagination: page.pagination })
    }

    /// Streams all recorded events, fetching pages on demand. Events that are recorded meanwhile are included only if the
    /// oldest come first. No event is missed or repeated.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # for _ in 0..3 { client.create("ubuntu:24.04").await?; }
    /// use futures_util::TryStreamExt;
    /// let all: Vec<_> = client.events().page_size(2).stream().try_collect().await?;
    /// assert!(all.len() == 6 && all.is_sorted_by_key(|event| event.id));
    /// # Ok(()) });
    /// ```
    pub fn stream(self) -> EventStream {
        ItemStream::of_pages(EventPages::new(self))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn last_event(&self) -> Option<EventId> {
        self.after
    }

    /// The path of the event stream.
    pub(crate) fn live(&self) -> String {
        let path = self.own_path().unwrap_or_else(|| ALL_EVENTS.to_owned());
        format!("{path}?{}", self.filters().trim_start_matches('&'))
    }

    /// The recorded events after `last_event`, for a sandbox that is terminated.
    pub(crate) fn recorded_after(&self, last_event: EventId) -> EventStream {
        let mut events = self.clone();
        (events.after, events.newest_first) = (Some(last_event), false);
        events.stream()
    }

    /// The path of the events of the sandbox.
    fn own_path(&self) -> Option<String> {
        self.sandbox.as_ref().map(|id| format!("/v1/sandboxes/{id}/events"))
    }

    fn filters(&self) -> String {
        let mut query = String::new();
        let mut add = |name: &str, value: &str| query.push_str(&format!("&{name}={}", encoded(value)));
        self.kinds.iter().for_each(|kind| add("type", kind));
        if let Some(run) = &self.run {
            add("runId", run);
        }
        for (name, time) in [("since", self.since), ("until", self.until)] {
            if let Some(time) = time {
                add(name, &time.to_string());
            }
        }
        query
    }

    /// Requests a page, which may contain event kinds of a newer service.
    async fn fetch(
        &self,
        after: Option<EventId>,
        before: Option<EventId>,
        offset: u64,
    ) -> Result<Page<Value>> {
        let range = PageRange { offset, limit: self.page_size };
        let mut query = format!("{range}{}", self.filters());
        for (name, id) in [("after", after), ("before", before)] {
            if let Some(id) = id {
                query.push_str(&format!("&{name}={id}"));
            }
        }
        if self.newest_first {
            query.push_str("&order=desc");
        }
        let transport = self.client.transport();
        if let Some(path) = self.own_path() {
            match transport.json(ApiCall::get(format!("{path}?{query}"))).await {
                // The events of a terminated sandbox remain in the list of the account.
                Err(error) if error.code() == Code::SandboxNotFound && error.terminated().is_some() => {}
                answer => return answer,
            }
        }
        let of_sandbox = self.sandbox.as_ref().map(|id| format!("&sandboxId={id}")).unwrap_or_default();
        transport.json(ApiCall::get(format!("{ALL_EVENTS}?{query}{of_sandbox}"))).await
    }
}

/// `None` for an event kind of a newer service.
pub fn known(event: Value) -> Option<RuntimeEvent> {
    serde_json::from_value(event).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::builder().url("http://127.0.0.1:9").key("any").build().unwrap()
    }

    #[tokio::test]
    async fn filters_are_encoded_in_the_query_of_a_stream() {
        let sandbox = client().sandbox("sb_00000000").unwrap();
        assert_eq!(client().events().live(), "/v1/events?");
        assert_eq!(sandbox.events().live(), "/v1/sandboxes/sb_00000000/events?");
        let since: Timestamp = "2023-11-14T22:13:20Z".parse().unwrap();
        let filtered =
            client().events().kind(EventKind::ExecStarted).kinds("file.*").run("a b&c").since(since);
        let expected =
            "/v1/events?type=exec.started&type=file.%2A&runId=a%20b%26c&since=2023-11-14T22%3A13%3A20.000Z";
        assert_eq!(filtered.live(), expected);
        // The position is a header of the stream, and its order is that of the events.
        let ordered = client().events().after(EventId(5)).newest_first().page_size(3).until(since);
        assert_eq!(ordered.live(), "/v1/events?until=2023-11-14T22%3A13%3A20.000Z");
        assert_eq!(ordered.last_event(), Some(EventId(5)));
    }

    #[test]
    fn an_event_of_a_newer_service_is_left_out() {
        let event = |kind: &str, sandbox: &str| {
            serde_json::json!({
                "id": "ev_0000000000000042", "timestamp": "2023-11-14T22:13:20Z", "type": kind,
                "sandboxId": sandbox, "runId": "", "data": {}, "later": 1,
            })
        };
        let found = known(event("exec.started", "sb_00000000")).unwrap();
        assert_eq!((found.id, found.kind), (EventId(42), EventKind::ExecStarted));
        assert!(known(event("exec.burnt", "sb_00000000")).is_none());
        assert!(known(event("exec.started", "no id")).is_none());
        assert!(known(Value::Null).is_none());
    }
}
