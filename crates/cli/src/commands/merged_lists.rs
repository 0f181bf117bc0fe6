//! Merges lists of sandboxes in several states, because the service filters by one state. Called by `ls`, `stats` and `rm --all`.

use std::collections::BTreeMap;

use anyhow::Result;
use futures_util::future::ready;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{List, SandboxItem};

/// Merges the lists, newest first, with at most `limit` items of each that `keep` accepts. A sandbox that changes its state meanwhile and
/// is in two lists is returned once, in the state seen last.
pub async fn merge(
    lists: impl IntoIterator<Item = List>,
    limit: usize,
    keep: impl Fn(&SandboxItem) -> bool,
) -> Result<Vec<SandboxItem>> {
    let mut found = BTreeMap::new();
    for list in lists {
        let items: Vec<_> =
            list.stream().try_filter(|item| ready(keep(item))).take(limit).try_collect().await?;
        found.extend(items.into_iter().map(|item| (item.id.clone(), item)));
    }
    let mut items: Vec<SandboxItem> = found.into_values().collect();
    items.sort_by_key(|item| std::cmp::Reverse(item.created_at));
    Ok(items)
}
