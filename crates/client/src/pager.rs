//! Reads a list of the service by pages, although the list may change between two requests.
//!
//! A page is requested by the number of items before it. An item that is created moves others to later places, so that a page repeats
//! items; one that is deleted moves others to earlier places, so that a page skips items. Therefore each page begins with the last item
//! of the page before. If it begins with an item that is not known, the pager goes back until it finds a known one.

pub mod filtered_list;
pub mod item_stream;

use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};
use std::hash::Hash;

use api::Pagination;
use futures_util::TryStreamExt;
use serde::Deserialize;

use crate::Result;
use crate::pager::item_stream::{ItemStream, PageSource};

/// The largest page size of the service.
pub const LARGEST_PAGE: u32 = 100;
/// How often in a row a pager goes back before it accepts a page as it is. Each time it goes twice as far, so this limit is reached only
/// if a service returns its items in no stable order.
const MOST_STEPS_BACK: u32 = 30;

/// A page of a list.
#[derive(Deserialize)]
pub struct Page<T> {
    /// The items, in the order of the list.
    pub data: Vec<T>,
    /// The position of the page.
    pub pagination: Pagination,
}

/// Which page of a list is requested. Its text is the query of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRange {
    /// The number of items before the page.
    pub offset: u64,
    /// The largest number of items on the page.
    pub limit: u32,
}

impl Display for PageRange {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "limit={}&offset={}", self.limit, self.offset)
    }
}

/// A query for a list with pages. The order of the list is stable: only new items come between others.
pub trait PagedQuery: Send + Sync + 'static {
    /// What the list consists of.
    type Item: Send + 'static;
    /// What distinguishes an item from all others of its list.
    type Key: Eq + Hash + Send + 'static;

    /// The number of items per request.
    fn page_size(&self) -> u32;

    /// The key of an item.
    fn key(item: &Self::Item) -> Self::Key;

    /// Requests a page.
    fn fetch(&self, range: PageRange) -> impl Future<Output = Result<Page<Self::Item>>> + Send;
}

/// Returns the items of a list: each once, and all that exist from the first request to the last. Of those that are created or deleted
/// meanwhile, it may return some.
pub struct Pager<Q: PagedQuery> {
    query: Q,
    position: ListPosition<Q::Key>,
}

impl<Q: PagedQuery> Pager<Q> {
    /// Begins at the start of the list.
    pub fn new(query: Q) -> Self {
        let position = ListPosition::new(query.page_size());
        Self { query, position }
    }

    /// The items one by one; a page is requested when it is needed.
    pub fn stream(self) -> ItemStream<Q::Item> {
        ItemStream::of_pages(self)
    }

    /// All items.
    pub async fn all(self) -> Result<Vec<Q::Item>> {
        self.stream().try_collect().await
    }
}

impl<Q: PagedQuery> PageSource for Pager<Q> {
    type Item = Q::Item;

    async fn next_page(&mut self) -> Result<Option<Vec<Q::Item>>> {
        let Some(range) = self.position.next else { return Ok(None) };
        let page = self.query.fetch(range).await?;
        Ok(Some(self.position.accept(range, page, Q::key)))
    }
}

/// What a pager knows of its list. It decides from the pages so far which one is next.
struct ListPosition<K> {
    /// The next page; `None` after the last.
    next: Option<PageRange>,
    page_size: u32,
    /// The items that were returned.
    returned: HashSet<K>,
    /// How often the pager went back since it last returned an item.
    steps_back: u32,
}

impl<K: Eq + Hash> ListPosition<K> {
    fn new(page_size: u32) -> Self {
        let first = PageRange { offset: 0, limit: page_size };
        Self { next: Some(first), page_size, returned: HashSet::new(), steps_back: 0 }
    }

    /// Takes the page of this range and returns the items that were not returned before.
    fn accept<T>(&mut self, range: PageRange, page: Page<T>, key: impl Fn(&T) -> K) -> Vec<T> {
        let is_known = |item: &T| self.returned.contains(&key(item));
        let continues = range.offset == 0 || page.data.first().is_some_and(is_known);
        if !continues && self.steps_back < MOST_STEPS_BACK {
            // Items were deleted, so items that were not returned may have moved before this page.
            self.next = Some(self.range_before(range.offset.min(page.pagination.total)));
            self.steps_back += 1;
            return Vec::new();
        }
        let received = page.data.len() as u64;
        // An empty page that announces more would cause an endless loop.
        let has_more = page.pagination.has_more && received > 0;
        self.next = has_more.then(|| self.range_after(range, received));
        let unknown: Vec<T> = page.data.into_iter().filter(|item| self.returned.insert(key(item))).collect();
        if !unknown.is_empty() {
            self.steps_back = 0;
        }
        unknown
    }

    /// The page that begins with the last of the items that were received for `range`.
    fn range_after(&self, range: PageRange, received: u64) -> PageRange {
        // A service that returns one item, of two that exist, would cause an endless loop.
        let overlap = u64::from(received > 1 || range.limit == 1);
        self.overlapping(range.offset.saturating_add(received) - overlap)
    }

    /// An earlier page than that at `offset`.
    fn range_before(&self, offset: u64) -> PageRange {
        let distance = u64::from(self.page_size.max(1)) << self.steps_back;
        self.overlapping(offset.saturating_sub(distance))
    }

    /// A page with room for the known item at its start, if the service allows that many items.
    fn overlapping(&self, offset: u64) -> PageRange {
        PageRange { offset, limit: self.page_size.saturating_add(1).min(LARGEST_PAGE) }
    }
}

#[cfg(test)]
mod tests;
