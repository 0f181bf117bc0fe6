//! Removes images of clients that were not used for long, when all images take more space than the operator allows.
//!
//! ```text
//! begin: lock out pulls, take the unused images out of the cache -> the caller reads which layers sandboxes and snapshots use
//!     -> finish: remove records and layers of those that nothing uses, return the others to the cache
//! ```
//!
//! A create holds its image from the cache until the record of the sandbox is committed. So an image that is not held when it is taken out
//! is either in a record that is read afterwards, or unused.

use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rules::{ImageRetention, StoredImage, images_to_remove, stored_bytes};
use tempfile::TempDir;

use super::{Images, ImagesState};
use crate::client::NamedBy;
use crate::error::ImageError;
use crate::image::Image;

/// Images that may be removed. Nobody can begin to use them, and no pull runs. Dropping it returns them.
pub struct Eviction {
    inner: Arc<ImagesState>,
    candidates: Vec<Arc<Image>>,
    max_bytes: u64,
    _lock: File,
}

impl Images {
    /// Begins to remove images until all take at most `max_bytes`. `None` if they do, or while a pull runs; then a later call can succeed.
    pub async fn begin_eviction(&self, max_bytes: u64) -> Result<Option<Eviction>, ImageError> {
        if self.stored_bytes() <= max_bytes {
            return Ok(None);
        }
        let inner = Arc::clone(&self.inner);
        self.blocking("begin to remove images", move |_| {
            let Some(lock) = inner.store.lock_for_removal()? else { return Ok(None) };
            inner.reload()?;
            // The images of the operator stay: he has chosen them.
            let is_of_client = |image: &Image| {
                image.named_by == NamedBy::Client && inner.catalogue.sources(&image.name).is_none()
            };
            let candidates = inner.cache.take_unused(is_of_client);
            Ok(Some(Eviction { inner: Arc::clone(&inner), candidates, max_bytes, _lock: lock }))
        })
        .await
    }
}

impl Eviction {
    /// Removes images that no sandbox and no snapshot uses. `in_use` contains the layers of all of them, and was read after
    /// [`Images::begin_eviction`]. Returns how many were removed.
    pub async fn finish(self, in_use: &HashSet<PathBuf>) -> Result<usize, ImageError> {
        let in_use: HashSet<String> = in_use.iter().map(|layer| layer_id(layer).to_owned()).collect();
        let removed = base::blocking(move || self.remove(&in_use)).await;
        removed.map_err(|error| ImageError::store("remove images", error))
    }

    fn remove(mut self, in_use: &HashSet<String>) -> std::io::Result<usize> {
        let candidates = std::mem::take(&mut self.candidates);
        let is_used = |image: &Arc<Image>| image.layers.iter().all(|layer| in_use.contains(layer_id(layer)));
        let (used, free): (Vec<_>, Vec<_>) = candidates.into_iter().partition(is_used);
        used.into_iter().for_each(|image| self.inner.cache.put_back(image));
        let others = self.others(&free);
        let removable = free.iter().map(|image| self.inner.stored(image, ImageRetention::Removable));
        let kept = others.iter().map(|image| self.inner.stored(image, ImageRetention::Kept));
        let all: Vec<StoredImage> = removable.chain(kept).collect();
        let removed: HashSet<usize> = images_to_remove(&all, self.max_bytes).into_iter().collect();
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        for (at, image) in free.into_iter().enumerate() {
            if removed.contains(&at) { gone.push(image) } else { stay.push(image) }
        }
        let of_others =
            others.iter().chain(&stay).flat_map(|image| &image.layers).map(|layer| layer_id(layer));
        let needed: HashSet<&str> = of_others.chain(in_use.iter().map(String::as_str)).collect();
        let mut graves = Vec::new();
        let removal = gone.iter().try_for_each(|image| self.inner.remove_image(image, &needed, &mut graves));
        drop(needed);
        stay.into_iter().for_each(|image| self.inner.cache.put_back(image));
        // Pulls may continue while the files are removed.
        drop(self);
        drop(graves);
        removal.map(|()| gone.len())
    }

    /// The images in memory that are not candidates, also former versions that somebody still uses.
    fn others(&self, candidates: &[Arc<Image>]) -> Vec<Arc<Image>> {
        let mut others = self.inner.cache.alive();
        others.retain(|image| !candidates.iter().any(|candidate| Arc::ptr_eq(candidate, image)));
        others
    }
}

impl Drop for Eviction {
    fn drop(&mut self) {
        for image in self.candidates.drain(..) {
            self.inner.cache.put_back(image);
        }
    }
}

impl ImagesState {
    pub(super) fn stored_bytes(&self) -> u64 {
        let stored = |image: &Arc<Image>| StoredImage {
            layers: sized_layers(image),
            last_used: 0,
            retention: ImageRetention::Kept,
        };
        stored_bytes(&self.cache.all().iter().map(stored).collect::<Vec<_>>())
    }

    fn stored(&self, image: &Image, retention: ImageRetention) -> StoredImage {
        StoredImage { layers: sized_layers(image), last_used: self.last_used_ns(&image.name), retention }
    }

    fn last_used_ns(&self, name: &str) -> u64 {
        let on_disk = || self.store.record_used(name).unwrap_or(UNIX_EPOCH);
        let at: SystemTime = self.cache.last_used(name).unwrap_or_else(on_disk);
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Removes the record of an image, and its layers that nothing else needs.
    fn remove_image(
        &self,
        image: &Image,
        needed: &HashSet<&str>,
        graves: &mut Vec<TempDir>,
    ) -> std::io::Result<()> {
        tracing::info!(image = %image.name, bytes = image.size_bytes, "removing an image that was not used for long");
        self.store.remove_record(&image.name)?;
        self.cache.forget_use(&image.name);
        for id in image.layers.iter().map(|layer| layer_id(layer)).filter(|id| !needed.contains(id)) {
            // A layer of two of the images is removed with the first one.
            if self.store.has_layer(id) {
                graves.push(self.store.remove_layer(id)?);
            }
        }
        Ok(())
    }
}

/// The id of a layer is the name of its directory.
fn layer_id(layer: &Path) -> &str {
    layer.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The layers with their sizes. Of an image from an earlier version only the size of all is known.
fn sized_layers(image: &Image) -> Vec<(String, u64)> {
    if image.layer_bytes.len() != image.layers.len() {
        return vec![(image.name.clone(), image.size_bytes)];
    }
    let ids = image.layers.iter().map(|layer| layer.to_string_lossy().into_owned());
    ids.zip(image.layer_bytes.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::OffsetDateTime;

    fn image(layers: &[&str], layer_bytes: &[u64]) -> Image {
        Image {
            name: "web".to_owned(),
            source: String::new(),
            digest: String::new(),
            layers: layers.iter().map(PathBuf::from).collect(),
            config: crate::image::ImageConfig::default(),
            stand_in: None,
            versions: Vec::new(),
            size_bytes: 99,
            layer_bytes: layer_bytes.to_vec(),
            named_by: NamedBy::Client,
            created_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn layers_are_counted_by_their_sizes_or_else_the_image_as_a_whole() {
        let known = sized_layers(&image(&["/l/a", "/l/b"], &[5, 7]));
        assert_eq!(known, [("/l/a".to_owned(), 5), ("/l/b".to_owned(), 7)]);
        for unknown in [image(&["/l/a", "/l/b"], &[]), image(&["/l/a", "/l/b"], &[5])] {
            assert_eq!(sized_layers(&unknown), [("web".to_owned(), 99)]);
        }
    }

    #[test]
    fn a_layer_is_the_same_wherever_it_is_mounted() {
        assert_eq!(layer_id(Path::new("/a/b/0123")), layer_id(Path::new("/c/0123")));
        assert_eq!(layer_id(Path::new("/")), "");
    }
}
