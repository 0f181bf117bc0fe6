//! The public interface of the crate: lists the images of this host and pulls missing ones. Each pull has one task,
//! shared by all its callers.

mod active_pulls;
mod cache;
mod evict;
mod fetch;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base::IgnorePoison;
use rules::ImageReference;
use tokio::sync::Semaphore;

use crate::catalogue::{Catalogue, check_name};
use crate::client::{ClientPull, ClientTurns, NamedBy};
use crate::error::ImageError;
use crate::image::Image;
use crate::job::Builds;
use crate::layers::LayerTable;
use crate::limits::ImageLimits;
use crate::oci::{RegistryOptions, UnreachableRegistries};
use crate::progress::{ProgressFn, PullReport};
use crate::source::ImageSource;
use crate::store::{ImageRecord, Store};

use active_pulls::{ActivePulls, Task};
use cache::Cache;

pub use evict::Eviction;

/// How images are fetched.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub limits: ImageLimits,
    pub registry: RegistryOptions,
}

/// How often a client joins pulls that are charged to other accounts.
const SHARED_ATTEMPTS: u32 = 4;
/// Layers that unpack at the same time in this process, which bounds the load of processor and disk.
const UNPACKS: usize = 2;

/// The images of this host. Clones share their state.
#[derive(Clone)]
pub struct Images {
    inner: Arc<ImagesState>,
}

struct ImagesState {
    store: Arc<Store>,
    catalogue: Catalogue,
    options: Options,
    cache: Cache,
    active_pulls: Mutex<ActivePulls>,
    layers: Arc<LayerTable>,
    unpacks: Arc<Semaphore>,
    turns: Arc<ClientTurns>,
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
        let inner = ImagesState {
            cache: Cache::default(),
            active_pulls: Mutex::default(),
            layers: Arc::default(),
            unpacks: Arc::new(Semaphore::new(UNPACKS)),
            turns: Arc::default(),
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
        self.inner.cache.get(name)
    }

    /// All available names: those of the catalogue and imported ones.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.inner.names()
    }

    /// The names that all accounts can use: those of the catalogue with a source, and those that the operator has imported.
    #[must_use]
    pub fn operator_names(&self) -> Vec<String> {
        self.inner.operator_names()
    }

    /// The image, pulled if it is not on this host. Concurrent calls for one name wait for the same pull, which continues if a
    /// caller gives up.
    pub async fn ensure(&self, name: &str, progress: ProgressFn) -> Result<Arc<Image>, ImageError> {
        if let Some(image) = self.get(name)
            && image.layers.iter().all(|layer| layer.is_dir())
        {
            return Ok(image);
        }
        if self.inner.catalogue.sources(name).is_none_or(<[ImageSource]>::is_empty) {
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
        let reference = ImageReference::parse(name);
        let name = reference.as_ref().and_then(|reference| self.catalogue_name(reference)).unwrap_or(name);
        let is_imported = self.find(name).await?.is_some_and(|image| image.named_by == NamedBy::Operator);
        if !self.is_in_catalogue(name)
            && !is_imported
            && let Some(reference) = reference
        {
            return self.pull_reference(&reference, progress).await;
        }
        let mut sources = self.sources(name)?;
        if let Some(image) = self.get(name)
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
        source: ImageSource,
        progress: ProgressFn,
    ) -> Result<Arc<Image>, ImageError> {
        check_name(name)?;
        self.inner.join_or_start(Task::import(name, source, NamedBy::Operator), progress).await
    }

    /// Pulls an image of a registry that a client has named by its reference, and stores it under the complete form of that. Fails if
    /// the registry has no public address, unless the operator has listed it. Returns an image that is on this host as it is.
    pub async fn import_for_client(
        &self,
        reference: &ImageReference,
        client: ClientPull,
        progress: ProgressFn,
    ) -> Result<Arc<Image>, ImageError> {
        let name = reference.to_string();
        let source = ImageSource::Registry { reference: name.clone() };
        let mut attempts = 0;
        loop {
            attempts += 1;
            let task = Task::for_client(&name, source.clone(), client.clone());
            match self.inner.join_or_start(task, Arc::clone(&progress)).await {
                // The pull was charged to another account, which has no more. This one has its own quota.
                Err(ImageError::PullQuota { account, .. })
                    if account != *client.account && attempts < SHARED_ATTEMPTS => {}
                pulled => return pulled,
            }
        }
    }

    /// Pulls an image outside the catalogue again, or for the first time. As before, only accounts that may name it can use it.
    async fn pull_reference(
        &self,
        reference: &ImageReference,
        progress: ProgressFn,
    ) -> Result<Arc<Image>, ImageError> {
        let name = reference.to_string();
        let source = ImageSource::Registry { reference: name.clone() };
        self.inner.unreachable_registries.forget();
        self.inner.join_or_start(Task::import(&name, source, NamedBy::Client), progress).await
    }

    /// All images on this host by name, including those that another process pulled.
    pub async fn list(&self) -> Result<Vec<Arc<Image>>, ImageError> {
        self.blocking("list the images", |inner| {
            let _lock = inner.store.lock_for_use()?;
            inner.reload()
        })
        .await?;
        let mut images = self.inner.cache.all();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// The image if it is on this host, including one that another process pulled.
    pub async fn find(&self, name: &str) -> Result<Option<Arc<Image>>, ImageError> {
        match self.get(name) {
            Some(image) => Ok(Some(image)),
            None => self.find_on_disk(name).await,
        }
    }

    /// As [`Self::find`], but sees also that another process has pulled the image again, or has removed it.
    pub async fn find_current(&self, name: &str) -> Result<Option<Arc<Image>>, ImageError> {
        let found = self.find_on_disk(name).await?;
        if found.is_none() {
            self.inner.cache.remove(name);
        }
        Ok(found)
    }

    /// Notes that the image is used, for [`Self::begin_eviction`].
    pub fn mark_used(&self, image: &Image) {
        if self.inner.cache.mark_used(&image.name)
            && let Err(error) = self.inner.store.touch_record(&image.name)
        {
            tracing::warn!(image = %image.name, %error, "cannot note the use of an image");
        }
    }

    /// The bytes of all layers of the images on this host. Reads memory only.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.inner.stored_bytes()
    }

    /// The free bytes of the file system with the images.
    pub async fn free_bytes(&self) -> Result<u64, ImageError> {
        self.blocking("read the free space", |inner| inner.store.free_bytes()).await
    }

    /// The pulls in progress in this process, in no order. Reads memory only.
    #[must_use]
    pub fn pulls(&self) -> Vec<PullReport> {
        self.inner.active_pulls.lock().ignore_poison().progress()
    }

    /// Whether the operator's catalogue has this name, whether or not the image is on this host.
    #[must_use]
    pub fn is_in_catalogue(&self, name: &str) -> bool {
        self.inner.catalogue.sources(name).is_some()
    }

    /// The name in the catalogue that a reference in any form stands for: `python:3.12` for `docker.io/library/python:3.12`. The image of
    /// that name must come from there.
    #[must_use]
    pub fn catalogue_name(&self, reference: &ImageReference) -> Option<&str> {
        self.inner.catalogue.name_of(reference)
    }

    /// Removes the record of an image, and returns whether there was one. Its layers stay until garbage collection.
    pub async fn remove(&self, name: &str) -> Result<bool, ImageError> {
        let name = name.to_owned();
        self.blocking("remove an image", move |inner| {
            inner.cache.remove(&name);
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
        let mut tasks = self.inner.active_pulls.lock().ignore_poison().take_tasks();
        tasks.shutdown().await;
    }

    /// Reads the record on disk.
    async fn find_on_disk(&self, name: &str) -> Result<Option<Arc<Image>>, ImageError> {
        let name = name.to_owned();
        self.blocking("read an image record", move |inner| {
            // Most names are of no image. For those no lock is needed.
            if inner.store.record(&name).is_none() {
                return Ok(None);
            }
            let _lock = inner.store.lock_for_use()?;
            Ok(inner.store.record(&name).map(|record| inner.add_to_cache(record)))
        })
        .await
    }

    fn sources(&self, name: &str) -> Result<Vec<ImageSource>, ImageError> {
        match self.inner.catalogue.sources(name) {
            Some([]) => Err(ImageError::NoSource { name: name.to_owned() }),
            Some(sources) => Ok(sources.to_vec()),
            None => Err(ImageError::UnknownName {
                name: name.chars().take(80).collect(),
                known: self.operator_names(),
            }),
        }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&ImagesState) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, ImageError> {
        let inner = self.inner.clone();
        base::blocking(move || work(&inner)).await.map_err(|error| ImageError::store(what, error))
    }
}

impl ImagesState {
    fn names(&self) -> Vec<String> {
        self.names_with(|_| true, |_| true)
    }

    fn operator_names(&self) -> Vec<String> {
        let has_source = |name: &str| self.catalogue.sources(name).is_some_and(|sources| !sources.is_empty());
        self.names_with(has_source, |image| image.named_by == NamedBy::Operator)
    }

    /// Some of the names of the catalogue and of the images on this host.
    fn names_with(&self, listed: impl Fn(&str) -> bool, here: impl Fn(&Image) -> bool) -> Vec<String> {
        let stored = self.cache.all();
        let stored = stored.iter().filter(|image| here(image)).map(|image| image.name.clone());
        let listed = self.catalogue.names().filter(|name| listed(name)).map(str::to_owned);
        let mut names: Vec<_> = listed.chain(stored).collect();
        names.sort();
        names.dedup();
        names
    }

    fn add_to_cache(&self, record: ImageRecord) -> Arc<Image> {
        self.cache.insert(record.into_image(&self.store))
    }

    /// Reads all records again.
    fn reload(&self) -> std::io::Result<()> {
        let before = self.cache.snapshot();
        let images = self.store.records()?.into_iter().map(|record| record.into_image(&self.store));
        self.cache.replace(&before, images);
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
