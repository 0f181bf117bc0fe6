//! Lists of the account with filters: the query that the builders for sandboxes, snapshots and templates share.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use super::{LARGEST_PAGE, Page, PageRange, PagedQuery};
use crate::Result;
use crate::transport::{ApiCall, Transport, encoded};

/// An item of such a list.
pub trait ListedItem: DeserializeOwned + Send + 'static {
    /// The path of the list.
    const PATH: &'static str;
    /// See [`PagedQuery::Key`].
    type Key: Eq + Hash + Send + 'static;

    /// What distinguishes it from all others of the list.
    fn key(&self) -> Self::Key;
}

/// A query for items that match all filters.
pub struct FilteredList<T> {
    transport: Transport,
    /// The values of query parameters by their names.
    filters: BTreeMap<String, String>,
    /// The number of items per request.
    pub page_size: u32,
    items: PhantomData<fn() -> T>,
}

impl<T: ListedItem> FilteredList<T> {
    /// All items.
    pub fn new(transport: &Transport) -> Self {
        let (filters, page_size) = (BTreeMap::new(), LARGEST_PAGE);
        Self { transport: transport.clone(), filters, page_size, items: PhantomData }
    }

    /// Sets a query parameter.
    pub fn filter(&mut self, name: &str, value: impl Into<String>) {
        self.filters.insert(name.to_owned(), value.into());
    }

    /// Filters by a tag.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.filters.insert(format!("metadata.{}", encoded(key.into())), value.into());
    }

    /// Requests the page that begins at `offset`.
    pub async fn page<L: DeserializeOwned>(&self, offset: u64) -> Result<L> {
        self.request(PageRange { offset, limit: self.page_size }).await
    }

    async fn request<L: DeserializeOwned>(&self, range: PageRange) -> Result<L> {
        let mut path = format!("{}?{range}", T::PATH);
        for (name, value) in &self.filters {
            path.push_str(&format!("&{name}={}", encoded(value)));
        }
        self.transport.json(ApiCall::get(path)).await
    }
}

impl<T: ListedItem> PagedQuery for FilteredList<T> {
    type Item = T;
    type Key = T::Key;

    fn page_size(&self) -> u32 {
        self.page_size
    }

    fn key(item: &T) -> T::Key {
        item.key()
    }

    async fn fetch(&self, range: PageRange) -> Result<Page<T>> {
        self.request(range).await
    }
}

// Derived implementations would require them of the items.
impl<T> Clone for FilteredList<T> {
    fn clone(&self) -> Self {
        let (transport, filters) = (self.transport.clone(), self.filters.clone());
        Self { transport, filters, page_size: self.page_size, items: PhantomData }
    }
}

impl<T> fmt::Debug for FilteredList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("FilteredList");
        debug.field("filters", &self.filters).field("page_size", &self.page_size).finish_non_exhaustive()
    }
}
