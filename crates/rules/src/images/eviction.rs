//! Which images are removed from the host when they take more space than the operator allows.

use std::collections::HashMap;

/// An image on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredImage {
    /// Ids of the layers with their sizes. Images share layers.
    pub layers: Vec<(String, u64)>,
    /// In any unit that grows.
    pub last_used: u64,
    pub retention: ImageRetention,
}

/// Whether an image may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageRetention {
    /// It is the operator's, or in use.
    Kept,
    Removable,
}

/// The bytes of all layers; a layer of several images counts once.
#[must_use]
pub fn stored_bytes(images: &[StoredImage]) -> u64 {
    let layers: HashMap<&str, u64> = all_layers(images).collect();
    layers.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// The images, by their positions, that are removed so that the rest takes at most `max_bytes`: the least recently used ones first. If
/// that is not possible, all that are removable.
#[must_use]
pub fn images_to_remove(images: &[StoredImage], max_bytes: u64) -> Vec<usize> {
    let mut users: HashMap<&str, usize> = HashMap::new();
    for (layer, _) in all_layers(images) {
        *users.entry(layer).or_default() += 1;
    }
    let mut order: Vec<usize> =
        (0..images.len()).filter(|at| images[*at].retention == ImageRetention::Removable).collect();
    order.sort_by_key(|at| images[*at].last_used);
    let mut total = stored_bytes(images);
    let mut removed = Vec::new();
    for at in order {
        if total <= max_bytes {
            break;
        }
        for (layer, bytes) in &images[at].layers {
            if let Some(count) = users.get_mut(layer.as_str()) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    total = total.saturating_sub(*bytes);
                }
            }
        }
        removed.push(at);
    }
    removed
}

fn all_layers(images: &[StoredImage]) -> impl Iterator<Item = (&str, u64)> {
    images.iter().flat_map(|image| &image.layers).map(|(layer, bytes)| (layer.as_str(), *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ImageRetention::{Kept, Removable};

    fn image(layers: &[(&str, u64)], last_used: u64, retention: ImageRetention) -> StoredImage {
        let layers = layers.iter().map(|(id, bytes)| ((*id).to_owned(), *bytes)).collect();
        StoredImage { layers, last_used, retention }
    }

    #[test]
    fn the_least_recently_used_are_removed_until_the_rest_fits() {
        let images = [
            image(&[("a", 10)], 3, Removable),
            image(&[("b", 10)], 1, Removable),
            image(&[("c", 10)], 2, Removable),
        ];
        assert_eq!(images_to_remove(&images, 30), Vec::<usize>::new());
        assert_eq!(images_to_remove(&images, 29), [1]);
        assert_eq!(images_to_remove(&images, 10), [1, 2]);
        assert_eq!(images_to_remove(&images, 0), [1, 2, 0]);
    }

    #[test]
    fn images_in_use_stay() {
        let images = [image(&[("a", 10)], 1, Kept), image(&[("b", 10)], 2, Removable)];
        assert_eq!(images_to_remove(&images, 5), [1]);
    }

    #[test]
    fn a_shared_layer_counts_once_and_is_freed_with_its_last_image() {
        let images = [
            image(&[("a", 1), ("base", 100)], 1, Removable),
            image(&[("b", 1), ("base", 100)], 2, Removable),
            image(&[("c", 50)], 3, Removable),
        ];
        assert_eq!(stored_bytes(&images), 152);
        // The first one frees one byte only.
        assert_eq!(images_to_remove(&images, 151), [0]);
        assert_eq!(images_to_remove(&images, 150), [0, 1]);
    }
}
