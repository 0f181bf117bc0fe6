//! The items of a list as one stream, fetched by page on demand.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};

use crate::Result;

/// The pages of a list, in the order of their requests.
pub trait PageSource: Send + 'static {
    /// What the list consists of.
    type Item: Send + 'static;

    /// Requests a page and returns those of its items that no earlier call returned; `None` after the last page.
    fn next_page(&mut self) -> impl Future<Output = Result<Option<Vec<Self::Item>>>> + Send;
}

/// A stream of the items of a list. It ends after the first error.
///
/// ```
/// # sandboxd::testing::with_client(async |client| {
/// use futures_util::TryStreamExt;
/// use sandboxd_client::{ItemStream, SnapshotView};
/// # client.create("ubuntu:24.04").await?.snapshot().name("nightly").await?;
/// let mut snapshots: ItemStream<SnapshotView> = client.snapshots().stream();
/// while let Some(snapshot) = snapshots.try_next().await? {
///     assert_eq!(snapshot.name.as_deref(), Some("nightly"));
/// }
/// # Ok(()) });
/// ```
#[must_use = "streams do nothing unless polled"]
pub struct ItemStream<T> {
    items: BoxStream<'static, Result<T>>,
}

impl<T: Send + 'static> ItemStream<T> {
    pub(crate) fn of(items: impl Stream<Item = Result<T>> + Send + 'static) -> Self {
        Self { items: items.boxed() }
    }

    pub(crate) fn of_pages(source: impl PageSource<Item = T>) -> Self {
        let items = try_unfold((source, VecDeque::new()), |(mut source, mut page)| async move {
            loop {
                if let Some(item) = page.pop_front() {
                    return Ok(Some((item, (source, page))));
                }
                let Some(next) = source.next_page().await? else { return Ok(None) };
                page = VecDeque::from(next);
            }
        });
        Self::of(items)
    }
}

impl<T> Stream for ItemStream<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().items.as_mut().poll_next(cx)
    }
}
