//! Lists of templates.

use api::{TemplateId, TemplateList, TemplateState, TemplateView};

use crate::Result;
use crate::client::Client;
use crate::pager::Pager;
use crate::pager::filtered_list::{FilteredList, ListedItem};
use crate::pager::item_stream::ItemStream;

impl Client {
    /// Lists templates and builds, newest first.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// client.build_template("web").dockerfile("FROM ubuntu:24.04").await?;
    /// for template in client.templates().all().await? {
    ///     println!("{} {}:{} {}", template.id, template.name, template.version, template.state);
    /// }
    /// # assert_eq!(client.templates().all().await?.len(), 1);
    /// # Ok(()) });
    /// ```
    pub fn templates(&self) -> Templates {
        Templates(FilteredList::new(self.transport()))
    }
}

/// A query for templates.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// # client.build_template("web").dockerfile("FROM ubuntu:24.04").await?;
/// let page = client.templates().name("web").page_size(10).page(0).await?;
/// assert_eq!(page.pagination.total, 1);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Templates(FilteredList<TemplateView>);

impl Templates {
    /// Filters by name.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert!(client.templates().name("web").all().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.0.filter("name", name);
        self
    }

    /// Filters by state.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert!(client.templates().state(sandboxd_client::TemplateState::Failed).all().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub fn state(mut self, state: TemplateState) -> Self {
        self.0.filter("state", state.name());
        self
    }

    /// Filters by tag. A template must match all tags.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert!(client.templates().metadata("job", "17").all().await?.is_empty());
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
    /// # for name in ["a", "b", "c"] { client.build_template(name).dockerfile("FROM ubuntu:24.04").await?; }
    /// let page = client.templates().page_size(2).page(0).await?;
    /// assert!(page.data.len() == 2 && page.pagination.has_more);
    /// # assert_eq!(client.templates().page_size(2).all().await?.len(), 3);
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
    /// let page = client.templates().page(0).await?;
    /// assert_eq!(page.pagination.total, 0);
    /// # Ok(()) });
    /// ```
    pub async fn page(&self, offset: u64) -> Result<TemplateList> {
        self.0.page(offset).await
    }

    /// Returns all templates. If templates are built or deleted meanwhile, all others are returned once.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// assert!(client.templates().all().await?.is_empty());
    /// # Ok(()) });
    /// ```
    pub async fn all(&self) -> Result<Vec<TemplateView>> {
        Pager::new(self.0.clone()).all().await
    }

    /// Streams all templates, fetching pages on demand. If templates are built or deleted meanwhile, all others are returned once.
    ///
    /// ```
    /// # sandboxd::testing::with_client(async |client| {
    /// use futures_util::TryStreamExt;
    /// # client.build_template("web").dockerfile("FROM ubuntu:24.04").await?;
    /// let mut templates = client.templates().page_size(10).stream();
    /// while let Some(template) = templates.try_next().await? {
    ///     assert_eq!(template.name, "web");
    /// }
    /// # Ok(()) });
    /// ```
    pub fn stream(self) -> ItemStream<TemplateView> {
        Pager::new(self.0).stream()
    }
}

impl ListedItem for TemplateView {
    const PATH: &'static str = "/v1/templates";
    type Key = TemplateId;

    fn key(&self) -> TemplateId {
        self.id.clone()
    }
}
