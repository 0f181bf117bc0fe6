//! The public interface of the crate: lists the images of this host and pulls missing ones. Each pull has one task,
//! shared by all its callers.

mod active_pulls;
mod fetch;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::Semaphore;

use crate::catalogue::{Catalogue, check_name};
use crate::error::ImageError;
use crate::image::Image;
use crate::job::Builds;
use crate::layers::LayerTable;
use crate::limits::Limits;
use crate::oci::{NamedBy, RegistryOptions, UnreachableRegistries};
use crate::progress::{Progress, ProgressFn};
use crate::source::Source;
use crate::store::{Record, Store};

use active_pulls::{ActivePulls, Task};

/// How images are fetched.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub limits: Limits,
    pub registry: RegistryOptions,
}

/// Layers that unpack at the same time in this process, which bounds the load of processor and disk.
const UNPACKS: usize = 2;

/// The images of this host. Clones share their state.
#[derive(Clone)]
pub struct Images {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<Store>,
    catalogue: Catalogue,
    options: Options,
    cache: RwLock<HashMap<String, Arc<Image>>>,
    active_pulls: Mutex<ActivePulls>,
    layers: Arc<LayerTable>,
    unpacks: Arc<Semaphore>,
    unreachable_registries: UnreachableRegistries,
}

/// The result of a garbage collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// Some process is pulling; nothing was removed. Retry later.
    Busy,
    Done {
        layers: usize,
    },
}

impl Images {
    /// Opens the image directory `root`, creates it if it does not exist, removes the work of dead processes, and
    /// reads all records.
    pub fn open(root: &Path, catalogue: Catalogue, options: Options) -> Result<Self, ImageError> {
        let fail = |e| ImageError::store(format!("open {}", root.display()), e);
        let store = Arc::new(Store::open(root).map_err(fail)?);
        let inner = Inner {
            cache: RwLock::default(),
            active_pulls: Mutex::default(),
            layers: Arc::default(),
            unpacks: Arc::new(Semaphore::new(UNPACKS)),
            unreachable_registries: UnreachableRegistries::new(options.registry.unreachable_for),
            store,
            catalogue,
            options,
        };
        inner.reload().map_err(fail)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The image if it is on this host. Looks in memory only.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Image>> {
        self.inner.cached(name)
    }

    /// All available names: those of the catalogue and imported ones.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.inner.names()
    }

    /// The image, pulled if it is not on this host. Concurrent calls for one name wait for the same pull, which continues if a
    /// caller gives up.
    pub async fn ensure(&self, name: &str, progress: ProgressFn) -> Result<Arc<Image>, ImageError> {
        if let Some(image) = self.inner.cached(name)
            && image.layers.iter().all(|layer| layer.is_dir())
        {
            return Ok(image);
        }
        if self.inner.catalogue.sources(name).is_none_or(<[Source]>::is_empty) {
            // Another process may have imported it.
            if let Some(image) = self.find_on_disk(name).await? {
                return Ok(image);
            }
        }
        let sources = self.sources(name)?;
        self.inner.join_or_start(Task::new(name, sources, Builds::Reuse), progress).await
    }

    /// Pulls the image again. Sources after the one of the current image are not tried, so a real image is not
    /// replaced by a stand-in. Sandboxes keep the old layers as long as these are passed to
    /// [`Self::collect_garbage`].
    pub async fn pull(&self, name: &str, progress: ProgressFn) -> Result<Arc<Image>, ImageError> {
        let mut sources = self.sources(name)?;
        if let Some(image) = self.inner.cached(name)
            && let Some(at) = sources.iter().position(|source| source.to_string() == image.source)
        {
            sources.truncate(at + 1);
        }
        self.inner.unreachable_registries.forget();
        self.inner.join_or_start(Task::new(name, sources, Builds::Renew), progress).await
    }

    /// Pulls `source` and stores it as `name`, which may be outside the catalogue. Replaces an existing image.
    pub async fn import(
        &self,
        name: &str,
        source: Source,
        progress: ProgressFn,
    ) -> Result<Arc<Image>, ImageError> {
        check_name(name)?;
        self.inner.join_or_start(Task::import(name, source, NamedBy::Operator), progress).await
    }

    /// Pulls an image of a registry that a client has named by its reference, and stores it under that. Fails if the registry has no
    /// public address, unless the operator has listed it.
    pub async fn import_for_client(
        &self,
        reference: &str,
        progress: ProgressFn,
    ) -> Result<Arc<Image>, ImageError> {
        check_name(reference)?;
        let source = match reference.parse()? {
            source @ Source::Registry { .. } => source,
            // Clients may name images of registries, never files of this host.
            _ => {
                let allowed =
                    "a name in the catalogue or a registry reference such as 'docker.io/library/debian:12'";
                return Err(ImageError::BadName {
                    name: reference.to_owned(),
                    reason: format!("use {allowed}"),
                });
            }
        };
        self.inner.join_or_start(Task::import(reference, source, NamedBy::Client), progress).await
    }

    /// All images on this host by name, including those that another process pulled.
    pub async fn list(&self) -> Result<Vec<Arc<Image>>, ImageError> {
        self.blocking("list the images", |inner| inner.reload()).await?;
        let cache = self.inner.cache.read().unwrap_or_else(PoisonError::into_inner);
        let mut images: Vec<_> = cache.values().cloned().collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// The image if it is on this host, including one that another process pulled.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Image>>, ImageError> {
        match self.inner.cached(name) {
            Some(image) => Ok(Some(image)),
            None => self.find_on_disk(name).await,
        }
    }

    /// The pulls in progress in this process, in no order. Reads memory only.
    #[must_use]
    pub fn pulls(&self) -> Vec<Progress> {
        self.inner.active_pulls.lock().unwrap_or_else(PoisonError::into_inner).progress()
    }

    /// Whether the operator's catalogue has this name, whether or not the image is on this host.
    #[must_use]
    pub fn is_in_catalogue(&self, name: &str) -> bool {
        self.inner.catalogue.sources(name).is_some()
    }

    /// Removes the record of an image, and returns whether there was one. Its layers stay until garbage collection.
    pub async fn remove(&self, name: &str) -> Result<bool, ImageError> {
        let name = name.to_owned();
        self.blocking("remove an image", move |inner| {
            inner.cache.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
            inner.store.remove_record(&name)
        })
        .await
    }

    /// Removes the layers that neither an image nor `in_use` names. `in_use` contains the layers (paths as in
    /// [`Image::layers`], or their last components) of all sandboxes and of those being created. Only the process
    /// that knows all sandboxes may call this.
    pub async fn collect_garbage(&self, in_use: &HashSet<PathBuf>) -> Result<Collected, ImageError> {
        let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let in_use: HashSet<String> = in_use.iter().filter_map(name).collect();
        self.blocking("collect garbage", move |inner| inner.collect(in_use)).await
    }

    /// Cancels all pulls and waits until they have ended; their callers get an error.
    pub async fn close(&self) {
        let mut tasks = self.inner.active_pulls.lock().unwrap_or_else(PoisonError::into_inner).take_tasks();
        tasks.shutdown().await;
    }

    /// Reads the record on disk.
    async fn find_on_disk(&self, name: &str) -> Result<Option<Arc<Image>>, ImageError> {
        let name = name.to_owned();
        self.blocking("read an image record", move |inner| {
            Ok(inner.store.record(&name).map(|record| inner.add_to_cache(record)))
        })
        .await
    }

    fn sources(&self, name: &str) -> Result<Vec<Source>, ImageError> {
        match self.inner.catalogue.sources(name) {
            Some([]) => Err(ImageError::NoSource { name: name.to_owned() }),
            Some(sources) => Ok(sources.to_vec()),
            None => {
                Err(ImageError::UnknownName { name: name.chars().take(80).collect(), known: self.names() })
            }
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Inner) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, ImageError> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.map_err(|e| ImageError::store(what, e))?.map_err(|e| ImageError::store(what, e))
    }
}

impl Inner {
    fn cached(&self, name: &str) -> Option<Arc<Image>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> =
            self.catalogue.names().map(str::to_owned).chain(cache.keys().cloned()).collect();
        names.sort();
        names.dedup();
        names
    }

    fn add_to_cache(&self, record: Record) -> Arc<Image> {
        let image = Arc::new(record.into_image(&self.store));
        self.cache.write().unwrap_or_else(PoisonError::into_inner).insert(image.name.clone(), image.clone());
        image
    }

    /// Reads all records again. Entries that a pull adds to the cache meanwhile are newer than the read ones, and
    /// stay.
    fn reload(&self) -> std::io::Result<()> {
        let before = self.cache.read().unwrap_or_else(PoisonError::into_inner).clone();
        let images = self.store.records()?.into_iter().map(|record| {
            let image = record.into_image(&self.store);
            (image.name.clone(), Arc::new(image))
        });
        let mut found: HashMap<String, Arc<Image>> = images.collect();
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = |name: &String, image: &Arc<Image>| {
            before.get(name).is_none_or(|before| !Arc::ptr_eq(before, image))
        };
        found.extend(cache.drain().filter(|(name, image)| is_new(name, image)));
        *cache = found;
        Ok(())
    }

    fn collect(&self, mut needed: HashSet<String>) -> std::io::Result<Collected> {
        let Some(lock) = self.store.lock_for_removal()? else { return Ok(Collected::Busy) };
        self.reload()?;
        needed.extend(self.store.records()?.into_iter().flat_map(|record| record.layers));
        let mut graves = Vec::new();
        for id in self.store.layer_ids()?.into_iter().filter(|id| !needed.contains(id)) {
            tracing::info!(layer = %id, "layer is no longer used");
            graves.push(self.store.remove_layer(&id)?);
        }
        self.store.remove_stale_builds()?;
        // Pulls may continue while the files are removed.
        drop(lock);
        Ok(Collected::Done { layers: graves.len() })
    }
}
