//! Sandboxes of several lists, for what is about more than one state: the service lists one at a time. Called by `ls` and `rm --all`.

use std::collections::BTreeMap;

use anyhow::Result;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{List, SandboxItem};

/// Those of each list, at most so many of one: each once and as it was seen last, because between two lists one may go from the first
/// to the second. Newest first.
pub async fn together(lists: impl IntoIterator<Item = List>, most: usize) -> Result<Vec<SandboxItem>> {
    let mut found = BTreeMap::new();
    for list in lists {
        let items: Vec<_> = list.stream().take(most).try_collect().await?;
        found.extend(items.into_iter().map(|item| (item.id.clone(), item)));
    }
    let mut items: Vec<SandboxItem> = found.into_values().collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.created_at));
    Ok(items)
}
