//! Images in the OCI form, from a registry or a layout: the manifest for this machine, its configuration and its layers,
//! every byte verified against the digest that named it.

mod credentials;
mod layout;
mod manifest;
mod reach;
mod registry;
mod retry;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use tempfile::TempDir;

use crate::fault::Fault;
use crate::image::ImageConfig;
use crate::job::{Job, Outcome};
use crate::layers::Slot;
use crate::progress::Stage;
use crate::source::LayoutSelect;
use crate::unpack::Whiteouts;

pub(crate) use reach::Reach;
pub use registry::RegistryOptions;

use layout::Layout;
use manifest::{Blob, Chosen};
use registry::Registry;

/// Layers of one image that are fetched at the same time.
const FETCHES: usize = 3;

/// A source of blobs.
enum Origin {
    Registry(Registry),
    Layout(Layout),
}

/// A blob's file: one of ours, thrown away after use, or one of a layout that only is read.
enum Fetched {
    Ours { file: PathBuf, _scratch: TempDir },
    Theirs(PathBuf),
}

impl Origin {
    /// A manifest or index by its digest, or the one the source names. Gives the text and its digest, which it has.
    async fn manifest(&self, digest: Option<&str>) -> Result<(Vec<u8>, String), Fault> {
        match self {
            Self::Registry(registry) => registry.manifest(digest).await,
            Self::Layout(layout) => layout.manifest(digest).await,
        }
    }

    /// A small blob into memory.
    async fn read(&self, blob: &Blob, job: &Job) -> Result<Vec<u8>, Fault> {
        if blob.size > manifest::TEXT_BYTES {
            let allowed = manifest::TEXT_BYTES;
            return Err(Fault::too_big(format!(
                "the image's configuration has {} bytes, allowed are {allowed}",
                blob.size
            )));
        }
        match self {
            Self::Registry(registry) => {
                job.meter.expect_bytes(blob.size);
                let fetched = registry.blob(blob, job).await?;
                let Fetched::Ours { file, .. } = &fetched else {
                    return Err(Fault::refused("no file was fetched"));
                };
                tokio::fs::read(file).await.map_err(Fault::io("read a blob"))
            }
            Self::Layout(layout) => layout.text(&blob.digest).await,
        }
    }

    async fn fetch(&self, blob: &Blob, job: &Job) -> Result<Fetched, Fault> {
        match self {
            Self::Registry(registry) => registry.blob(blob, job).await,
            Self::Layout(layout) => {
                job.meter.add(blob.size);
                layout.blob(&blob.digest).map(Fetched::Theirs)
            }
        }
    }
}

pub(crate) async fn from_registry(
    job: &Job,
    reference: &str,
    options: &RegistryOptions,
    reach: &Reach,
) -> Result<Outcome, Fault> {
    let registry = Registry::connect(reference, options, reach).await?;
    image(job, &Origin::Registry(registry)).await
}

pub(crate) async fn from_layout(job: &Job, dir: &Path, select: &LayoutSelect) -> Result<Outcome, Fault> {
    image(job, &Origin::Layout(Layout::open(dir, select)?)).await
}

async fn image(job: &Job, origin: &Origin) -> Result<Outcome, Fault> {
    let (digest, manifest) = resolve(origin).await?;
    let config = manifest::parse_config(&origin.read(&manifest.config, job).await?)?;
    if config.diff_ids.len() != manifest.layers.len() {
        return Err(Fault::refused(format!(
            "the image has {} layers but its configuration names {}",
            manifest.layers.len(),
            config.diff_ids.len()
        )));
    }
    job.meter.stage(Stage::Fetching);
    let mut wanted: Vec<(Blob, String)> = manifest.layers.into_iter().zip(config.diff_ids).collect();
    // Topmost first, and each layer once: what a lower copy of a layer has, the upper one hides.
    wanted.reverse();
    let mut seen = std::collections::HashSet::new();
    wanted.retain(|(_, diff_id)| seen.insert(diff_id.clone()));
    let mut fetches = Vec::new();
    for (blob, diff_id) in &wanted {
        let missing_bytes = if job.store.has_layer(diff_id) { 0 } else { blob.size };
        job.meter.expect_bytes(missing_bytes);
        fetches.push(layer(job, origin, blob, diff_id, missing_bytes));
    }
    let mut layers: Vec<Arc<Slot>> =
        futures_util::stream::iter(fetches).buffered(FETCHES).try_collect().await?;
    drop_hidden(job, &mut layers).await;
    Ok(Outcome { digest, layers, config: config.config, stand_in: None, versions: vec![], built: vec![] })
}

/// Follows an index to the manifest for this machine. The digest told is that of what the source names.
async fn resolve(origin: &Origin) -> Result<(String, manifest::Manifest), Fault> {
    let (text, first) = origin.manifest(None).await?;
    let mut chosen = manifest::parse(&text)?;
    for _ in 0..manifest::NESTING {
        match chosen {
            Chosen::Manifest(manifest) => return Ok((first, manifest)),
            Chosen::Next(digest) => chosen = manifest::parse(&origin.manifest(Some(&digest)).await?.0)?,
        }
    }
    Err(Fault::refused(format!("the image's index leads to an index more than {} times", manifest::NESTING)))
}

async fn layer(
    job: &Job,
    origin: &Origin,
    blob: &Blob,
    diff_id: &str,
    missing_bytes: u64,
) -> Result<Arc<Slot>, Fault> {
    let slot = job.layers.slot(diff_id);
    let mut by_others = missing_bytes;
    let make = async {
        by_others = 0;
        let fetched = origin.fetch(blob, job).await?;
        let file = match &fetched {
            Fetched::Ours { file, .. } | Fetched::Theirs(file) => file.clone(),
        };
        let (unpacked, scratch) = job.unpack_file(file, Whiteouts::Honour).await?;
        // A blob from a registry was verified when it was fetched; a layout's is read here for the first time.
        for (what, want, got) in [
            ("blob", blob.digest.as_str(), format!("sha256:{}", unpacked.blob_id)),
            ("unpacked layer", &format!("sha256:{diff_id}"), format!("sha256:{}", unpacked.diff_id)),
        ] {
            if want != got {
                return Err(Fault::refused(format!(
                    "the {what} is not what its digest says: want {want}, got {got}"
                )));
            }
        }
        Ok(scratch)
    };
    slot.fill(&job.store, make).await?;
    job.meter.add(by_others);
    Ok(slot)
}

/// A layer whose root is opaque hides all below it, which overlayfs does not honour at the root of a layer.
async fn drop_hidden(job: &Job, layers: &mut Vec<Arc<Slot>>) {
    for at in 0..layers.len() {
        let opaque = |tree: &Path| {
            let mut value = [0_u8; 1];
            matches!(rustix::fs::getxattr(tree, "trusted.overlay.opaque", &mut value[..]), Ok(1))
                && value == *b"y"
        };
        if layers[at].look(&job.store, opaque).await {
            layers.truncate(at + 1);
            return;
        }
    }
}

/// What of an image's configuration is used.
struct Config {
    config: ImageConfig,
    /// In hexadecimal, lowest layer first.
    diff_ids: Vec<String>,
}
