//! Lists of sandboxes, by page or as one stream.

use api::{SandboxId, SandboxItem, SandboxList, SandboxState};

use crate::Result;
use crate::client::Client;
use crate::pager::Pager;
use crate::pager::filtered_list::{FilteredList, ListedItem};
use crate::pager::item_stream::ItemStream;

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
        List(FilteredList::new(self.transport()))
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
pub struct List(FilteredList<SandboxItem>);

impl List {
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
        self.0.filter("details", "true");
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
        self.0.filter("state", state.to_string());
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
        self.0.filter("image", image);
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
        self.0.metadata(key, value);
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
        self.0.page_size = page_size;
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
        self.0.page(offset).await
    }

    /// Streams all sandboxes, fetching pages on demand. If sandboxes are created or terminated meanwhile, all others are returned once.
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
        Pager::new(self.0).stream()
    }
}

impl ListedItem for SandboxItem {
    const PATH: &'static str = "/v1/sandboxes";
    type Key = SandboxId;

    fn key(&self) -> SandboxId {
        self.id.clone()
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
pub type Listing = ItemStream<SandboxItem>;
