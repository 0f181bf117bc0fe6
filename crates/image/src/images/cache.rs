//! The images on this host, in memory. An image that somebody uses is one of which a copy exists outside the cache.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, RwLock, RwLockWriteGuard, Weak};
use std::time::{Duration, SystemTime};

use base::IgnorePoison;

use crate::image::Image;

/// How often the use of an image is written to the disk.
const TOUCH_INTERVAL: Duration = Duration::from_secs(600);

type ByName = HashMap<String, Arc<Image>>;

#[derive(Default)]
pub(super) struct Cache {
    images: RwLock<ByName>,
    /// Every image that was in the cache and is still used, also one that was pulled again since.
    alive: Mutex<Vec<Weak<Image>>>,
    /// When images were used last, and when that was written to the disk.
    used: Mutex<HashMap<String, Use>>,
}

#[derive(Clone, Copy)]
struct Use {
    last: SystemTime,
    written: SystemTime,
}

impl Cache {
    pub(super) fn get(&self, name: &str) -> Option<Arc<Image>> {
        self.images.read().ignore_poison().get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Image>> {
        self.images.read().ignore_poison().values().cloned().collect()
    }

    pub(super) fn snapshot(&self) -> ByName {
        self.images.read().ignore_poison().clone()
    }

    /// Adds an image, or replaces the one of its name. An equal one stays, so that its users are known.
    pub(super) fn insert(&self, image: Image) -> Arc<Image> {
        let mut images = self.write();
        if let Some(known) = images.get(&image.name).filter(|known| ***known == image) {
            return Arc::clone(known);
        }
        let image = Arc::new(image);
        images.insert(image.name.clone(), Arc::clone(&image));
        self.add_alive(&image);
        image
    }

    pub(super) fn remove(&self, name: &str) {
        self.write().remove(name);
    }

    /// Replaces all images by those that were read, except what was added since `before`: that is newer.
    pub(super) fn replace(&self, before: &ByName, read: impl Iterator<Item = Image>) {
        let read: Vec<Image> = read.collect();
        let mut images = self.write();
        let is_new = |name: &String, image: &Arc<Image>| {
            before.get(name).is_none_or(|before| !Arc::ptr_eq(before, image))
        };
        let mut now = ByName::new();
        for image in read {
            let known = images.get(&image.name).filter(|known| ***known == image).cloned();
            let image = known.unwrap_or_else(|| {
                let image = Arc::new(image);
                self.add_alive(&image);
                image
            });
            now.insert(image.name.clone(), image);
        }
        now.extend(images.drain().filter(|(name, image)| is_new(name, image)));
        *images = now;
    }

    /// Takes out the images that nobody uses and that `filter` accepts. Nobody can begin to use them then.
    pub(super) fn take_unused(&self, filter: impl Fn(&Image) -> bool) -> Vec<Arc<Image>> {
        let mut images = self.write();
        let is_unused = |image: &Arc<Image>| Arc::strong_count(image) == 1 && filter(image);
        let names: Vec<String> =
            images.values().filter(|image| is_unused(image)).map(|image| image.name.clone()).collect();
        names.iter().filter_map(|name| images.remove(name)).collect()
    }

    /// Returns an image from [`Self::take_unused`], unless there is a newer one.
    pub(super) fn put_back(&self, image: Arc<Image>) {
        self.write().entry(image.name.clone()).or_insert(image);
    }

    /// All images that exist in memory.
    pub(super) fn alive(&self) -> Vec<Arc<Image>> {
        let mut alive = self.alive.lock().ignore_poison();
        alive.retain(|image| image.strong_count() > 0);
        alive.iter().filter_map(Weak::upgrade).collect()
    }

    /// Notes a use. Returns whether it should be written to the disk.
    pub(super) fn mark_used(&self, name: &str) -> bool {
        let now = SystemTime::now();
        let mut used = self.used.lock().ignore_poison();
        let Some(entry) = used.get_mut(name) else {
            used.insert(name.to_owned(), Use { last: now, written: now });
            return true;
        };
        entry.last = now;
        let is_due = now.duration_since(entry.written).is_ok_and(|since| since >= TOUCH_INTERVAL);
        if is_due {
            entry.written = now;
        }
        is_due
    }

    /// When the image was used last, if this process has seen it.
    pub(super) fn last_used(&self, name: &str) -> Option<SystemTime> {
        self.used.lock().ignore_poison().get(name).map(|used| used.last)
    }

    /// Forgets the uses of an image that was removed.
    pub(super) fn forget_use(&self, name: &str) {
        self.used.lock().ignore_poison().remove(name);
    }

    fn write(&self) -> RwLockWriteGuard<'_, ByName> {
        self.images.write().ignore_poison()
    }

    fn add_alive(&self, image: &Arc<Image>) {
        let mut alive = self.alive.lock().ignore_poison();
        alive.retain(|image| image.strong_count() > 0);
        alive.push(Arc::downgrade(image));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::NamedBy;
    use crate::image::ImageConfig;

    fn image(name: &str, digest: &str) -> Image {
        Image {
            name: name.to_owned(),
            source: "source".to_owned(),
            digest: digest.to_owned(),
            layers: Vec::new(),
            config: ImageConfig::default(),
            stand_in: None,
            versions: Vec::new(),
            size_bytes: 0,
            layer_bytes: Vec::new(),
            named_by: NamedBy::Client,
            created_at: time::OffsetDateTime::UNIX_EPOCH,
        }
    }

    /// Names and digests, sorted.
    fn listed(images: &[Arc<Image>]) -> Vec<(&str, &str)> {
        let mut all: Vec<_> =
            images.iter().map(|image| (image.name.as_str(), image.digest.as_str())).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_equal_image_stays_the_one_that_is_known() {
        let cache = Cache::default();
        let first = cache.insert(image("a", "1"));
        assert!(Arc::ptr_eq(&first, &cache.insert(image("a", "1"))));
        let newer = cache.insert(image("a", "2"));
        assert_eq!(cache.get("a").unwrap().digest, "2");
        // Somebody still uses the first one, so its layers are not free.
        assert_eq!(listed(&cache.alive()), [("a", "1"), ("a", "2")]);
        drop(first);
        assert_eq!(listed(&cache.alive()), [("a", "2")]);
        drop(newer);
        cache.remove("a");
        assert!(cache.alive().is_empty() && cache.get("a").is_none());
    }

    #[test]
    fn what_is_read_replaces_all_but_what_was_added_meanwhile() {
        let cache = Cache::default();
        let kept = cache.insert(image("kept", "1"));
        for name in ["removed", "changed"] {
            cache.insert(image(name, "1"));
        }
        let before = cache.snapshot();
        // While the disk is read, one is pulled and another one is pulled again.
        cache.insert(image("added", "1"));
        cache.insert(image("changed", "2"));
        let read = [image("kept", "1"), image("changed", "1"), image("found", "1")];
        cache.replace(&before, read.into_iter());
        let expected = [("added", "1"), ("changed", "2"), ("found", "1"), ("kept", "1")];
        assert_eq!(listed(&cache.all()), expected);
        assert!(Arc::ptr_eq(&kept, &cache.get("kept").unwrap()), "its users stay known");
    }

    #[test]
    fn only_images_that_nobody_uses_are_taken_out() {
        let cache = Cache::default();
        let used = cache.insert(image("used", "1"));
        for name in ["free", "refused"] {
            cache.insert(image(name, "1"));
        }
        let taken = cache.take_unused(|image| image.name != "refused");
        assert_eq!(listed(&taken), [("free", "1")]);
        assert!(cache.get("free").is_none() && cache.get("used").is_some() && cache.get("refused").is_some());
        drop(used);
        assert_eq!(listed(&cache.take_unused(|_| true)), [("refused", "1"), ("used", "1")]);
    }

    #[test]
    fn an_image_that_was_taken_out_does_not_replace_a_newer_one() {
        let cache = Cache::default();
        for name in ["a", "b"] {
            cache.insert(image(name, "1"));
        }
        let taken = cache.take_unused(|_| true);
        cache.insert(image("a", "2"));
        taken.into_iter().for_each(|image| cache.put_back(image));
        assert_eq!(listed(&cache.all()), [("a", "2"), ("b", "1")]);
    }

    #[test]
    fn a_use_is_written_at_once_and_then_now_and_then() {
        let cache = Cache::default();
        assert!(cache.last_used("a").is_none());
        assert!(cache.mark_used("a") && !cache.mark_used("a"));
        // Another image, and one that was removed.
        assert!(cache.mark_used("b"));
        cache.forget_use("a");
        assert!(cache.last_used("a").is_none() && cache.mark_used("a"));
        let written = SystemTime::now() - TOUCH_INTERVAL;
        let long_ago = Use { last: written, written };
        cache.used.lock().ignore_poison().insert("a".to_owned(), long_ago);
        assert!(cache.mark_used("a") && !cache.mark_used("a"));
        assert!(cache.last_used("a").unwrap() > written);
    }
}
