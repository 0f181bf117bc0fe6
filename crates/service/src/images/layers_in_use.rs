//! The layers of images that must stay on this host.

use std::collections::HashSet;
use std::path::PathBuf;

use store::{Store, StoreError};

/// The layers that sandboxes use, including paused ones, and those below snapshots. A template is a snapshot.
pub async fn layers_in_use(store: &dyn Store) -> Result<HashSet<PathBuf>, StoreError> {
    let (living, snapshots) = (store.living().await?, store.snapshots().await?);
    let layers = living.into_iter().map(|record| record.layers);
    let layers = layers.chain(snapshots.into_iter().map(|record| record.layers));
    Ok(layers.flatten().map(PathBuf::from).collect())
}
