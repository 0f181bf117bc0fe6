//! Directory listings, by page or as one stream.

use std::path::Path;

use api::{FileEntry, FileList};
use serde::de::DeserializeOwned;

use super::Files;
use crate::Result;
use crate::pager::item_stream::ItemStream;
use crate::pager::{LARGEST_PAGE, Page, PageRange, PagedQuery, Pager};
use crate::transport::ApiCall;

impl Files {
    /// Lists a directory, sorted by name.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # sandbox.files().write("src/main.py", "").parents().await?;
    /// use futures_util::TryStreamExt;
    /// let mut list = sandbox.files().list("src").stream();
    /// while let Some(entry) = list.try_next().await? {
    ///     println!("{} {} {}", entry.mode, entry.size_bytes, entry.name);
    /// }
    /// # Ok(()) });
    /// ```
    pub fn list(&self, path: impl AsRef<Path>) -> ListFiles {
        ListFiles { files: self.clone(), path: path.as_ref().into(), page_size: LARGEST_PAGE }
    }
}

/// A query for the entries of a directory.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # sandbox.files().write("a.txt", "").await?;
/// let page = sandbox.files().list(".").page(0).await?;
/// assert_eq!((page.pagination.total, page.data[0].name.as_str()), (1, "a.txt"));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ListFiles {
    files: Files,
    path: Box<Path>,
    page_size: u32,
}

impl ListFiles {
    /// Sets the number of items per request: 1 to 100, by default 100.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # for name in ["a", "b", "c"] { sandbox.files().write(name, "").await?; }
    /// let page = sandbox.files().list(".").page_size(2).page(0).await?;
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
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # for name in ["a", "b", "c"] { sandbox.files().write(name, "").await?; }
    /// let page = sandbox.files().list(".").page(2).await?;
    /// assert_eq!(page.data[0].name, "c");
    /// # Ok(()) });
    /// ```
    pub async fn page(&self, offset: u64) -> Result<FileList> {
        self.request(PageRange { offset, limit: self.page_size }).await
    }

    /// Streams all entries, fetching pages on demand. If entries are created or deleted meanwhile, all others are returned once.
    ///
    /// ```
    /// # sandboxd::testing::with_sandbox(async |sandbox| {
    /// # for name in ["a", "b", "c"] { sandbox.files().write(name, "").await?; }
    /// use futures_util::TryStreamExt;
    /// let all: Vec<_> = sandbox.files().list(".").page_size(2).stream().try_collect().await?;
    /// assert_eq!(all.len(), 3);
    /// # Ok(()) });
    /// ```
    pub fn stream(self) -> FileListing {
        Pager::new(self).stream()
    }

    async fn request<T: DeserializeOwned>(&self, range: PageRange) -> Result<T> {
        let url = self.files.url("/list", &[("path", &self.path)], &format!("&{range}"));
        let list = self.files.sandbox.json(ApiCall::get(url)).await;
        list.map_err(|error| self.files.failed("list", &self.path, error))
    }
}

impl PagedQuery for ListFiles {
    type Item = FileEntry;
    type Key = String;

    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn key(entry: &FileEntry) -> String {
        entry.name.clone()
    }

    async fn fetch(&self, range: PageRange) -> Result<Page<FileEntry>> {
        self.request(range).await
    }
}

/// A stream of directory entries. It ends after the first error.
///
/// ```
/// # sandboxd::testing::with_sandbox(async |sandbox| {
/// # sandbox.files().write("a.txt", "").await?;
/// use futures_util::StreamExt;
/// let mut list: sandboxd_client::FileListing = sandbox.files().list(".").stream();
/// assert_eq!(list.next().await.unwrap()?.name, "a.txt");
/// # Ok(()) });
/// ```
pub type FileListing = ItemStream<FileEntry>;
