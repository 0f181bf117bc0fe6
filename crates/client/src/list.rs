//! Lists of sandboxes, by page or as one stream.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll};

use api::{SandboxId, SandboxItem, SandboxList, SandboxState};
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};

use crate::Result;
use crate::client::Client;
use crate::transport::{Call, encoded};

const LARGEST_PAGE: u32 = 100;

impl Client {
    /// Lists sandboxes, newest first.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use futures_util::TryStreamExt;
    /// # client.create("ubuntu:24.04").await?;
    /// let mut list = client.list().state(sandboxd_client::SandboxState::Running).stream();
    /// while let Some(item) = list.try_next().await? {
    ///     println!("{} {}", item.id, item.image);
    /// }
    /// # Ok(()) });
    /// ```
    pub fn list(&self) -> List {
        List::new(self.clone())
    }
}

/// A query for sandboxes.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// # client.create("ubuntu:24.04").metadata("job", "17").await?;
/// let page = client.list().metadata("job", "17").page_size(10).page(0).await?;
/// assert_eq!(page.pagination.total, 1);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct List {
    client: Client,
    state: Option<SandboxState>,
    image: Option<String>,
    metadata: BTreeMap<String, String>,
    page_size: u32,
    has_details: bool,
}

impl List {
    fn new(client: Client) -> Self {
        let (page_size, has_details) = (LARGEST_PAGE, false);
        Self { client, state: None, image: None, metadata: BTreeMap::new(), page_size, has_details }
    }

    /// Requests items that also have their isolation and metadata, and the times of their hibernation and of the end of their timeout.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # client.create("ubuntu:24.04").metadata("job", "17").await?;
    /// let page = client.list().details().page(0).await?;
    /// assert!(page.data[0].isolation.is_some() && page.data[0].expires_at.is_some());
    /// # Ok(()) });
    /// ```
    pub fn details(mut self) -> Self {
        self.has_details = true;
        self
    }

    /// Filters by state.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let paused = client.list().state(sandboxd_client::SandboxState::Paused).page(0).await?;
    /// assert_eq!(paused.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn state(mut self, state: SandboxState) -> Self {
        self.state = Some(state);
        self
    }

    /// Filters by image.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let none = client.list().image("node:22").page(0).await?;
    /// assert_eq!(none.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn image(mut self, image: impl Into<String>) -> Self {
        self.image = Some(image.into());
        self
    }

    /// Filters by tag. A sandbox must match all tags.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// let none = client.list().metadata("userId", "user_123").metadata("job", "17").page(0).await?;
    /// assert_eq!(none.data.len(), 0);
    /// # Ok(()) });
    /// ```
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Sets the number of items per request: 1 to 100, by default 100.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # for _ in 0..3 { client.create("ubuntu:24.04").await?; }
    /// let page = client.list().page_size(2).page(0).await?;
    /// assert!(page.data.len() == 2 && page.pagination.has_more);
    /// # Ok(()) });
    /// ```
    pub fn page_size(mut self, page_size: u32) -> Self {
        self.page_size = page_size;
        self
    }

    /// Returns one page, starting at `offset`.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// # for _ in 0..3 { client.create("ubuntu:24.04").await?; }
    /// let page = client.list().page_size(2).page(2).await?;
    /// assert!(page.data.len() == 1 && !page.pagination.has_more);
    /// # Ok(()) });
    /// ```
    pub async fn page(&self, offset: u64) -> Result<SandboxList> {
        self.client.transport().json(Call::get(self.path(offset))).await
    }

    /// Streams all sandboxes, fetching pages on demand. A sandbox that moves to a later page because others are created is returned
    /// only once.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use futures_util::TryStreamExt;
    /// # for _ in 0..5 { client.create("ubuntu:24.04").await?; }
    /// let all: Vec<_> = client.list().page_size(2).stream().try_collect().await?;
    /// assert_eq!(all.len(), 5);
    /// # Ok(()) });
    /// ```
    pub fn stream(self) -> Listing {
        let begin = Pages { list: self, offset: Some(0), page: VecDeque::new(), last: HashSet::new() };
        let items = try_unfold(begin, |mut pages| async move {
            loop {
                if let Some(item) = pages.page.pop_front() {
                    return Ok(Some((item, pages)));
                }
                let Some(offset) = pages.offset else { return Ok(None) };
                pages.fetch_page(offset).await?;
            }
        });
        Listing { items: items.boxed() }
    }

    fn path(&self, offset: u64) -> String {
        let mut path = format!("/v1/sandboxes?limit={}&offset={offset}", self.page_size);
        if self.has_details {
            path.push_str("&details=true");
        }
        if let Some(state) = self.state {
            path.push_str(&format!("&state={state}"));
        }
        if let Some(image) = &self.image {
            path.push_str(&format!("&image={}", encoded(image)));
        }
        for (key, value) in &self.metadata {
            path.push_str(&format!("&metadata.{}={}", encoded(key), encoded(value)));
        }
        path
    }
}

struct Pages {
    list: List,
    /// Offset of the next page; `None` after the last.
    offset: Option<u64>,
    page: VecDeque<SandboxItem>,
    /// The previous page, to recognise sandboxes that shifted to the next one.
    last: HashSet<SandboxId>,
}

impl Pages {
    async fn fetch_page(&mut self, offset: u64) -> Result<()> {
        let page = self.list.page(offset).await?;
        let seen = page.data.len();
        // An empty page that announces more would cause an endless loop.
        let more = page.pagination.has_more && seen > 0;
        self.offset = more.then(|| offset + u64::try_from(seen).unwrap_or(u64::MAX));
        let ids = page.data.iter().map(|item| item.id.clone()).collect();
        let last = std::mem::replace(&mut self.last, ids);
        self.page = page.data.into_iter().filter(|item| !last.contains(&item.id)).collect();
        Ok(())
    }
}

/// A stream of sandboxes, newest first. It ends after the first error.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// use futures_util::StreamExt;
/// let mut list: sandboxd_client::Listing = client.list().stream();
/// assert!(list.next().await.is_none());
/// # Ok(()) });
/// ```
pub struct Listing {
    items: BoxStream<'static, Result<SandboxItem>>,
}

impl Stream for Listing {
    type Item = Result<SandboxItem>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().items.as_mut().poll_next(cx)
    }
}
