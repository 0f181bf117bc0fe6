//! Directory listings, by page or as one stream.

use std::collections::VecDeque;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use api::{FileEntry, FileList};
use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};

use super::Files;
use crate::Result;
use crate::transport::Call;

const LARGEST_PAGE: u32 = 100;

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
        let more = format!("&limit={}&offset={offset}", self.page_size);
        let list =
            self.files.sandbox.json(Call::get(self.files.url("/list", &[("path", &self.path)], &more)));
        list.await.map_err(|error| self.files.failed("list", &self.path, error))
    }

    /// Streams all entries, fetching pages on demand. If the directory changes meanwhile, entries may be missed or shifted to another
    /// page.
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
        let begin = (self, Some(0), VecDeque::new());
        let entries = try_unfold(begin, |(list, mut next, mut page)| async move {
            loop {
                if let Some(entry) = page.pop_front() {
                    return Ok(Some((entry, (list, next, page))));
                }
                let Some(offset) = next else { return Ok(None) };
                let received = list.page(offset).await?;
                // An empty page that announces more would cause an endless loop.
                let more = received.pagination.has_more && !received.data.is_empty();
                next = more.then(|| offset + u64::try_from(received.data.len()).unwrap_or(u64::MAX));
                page = received.data.into();
            }
        });
        FileListing { entries: entries.boxed() }
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
#[must_use = "streams do nothing unless polled"]
pub struct FileListing {
    entries: BoxStream<'static, Result<FileEntry>>,
}

impl Stream for FileListing {
    type Item = Result<FileEntry>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().entries.as_mut().poll_next(cx)
    }
}
