//! OCI images from a registry or a layout: the manifest for this machine, its configuration and its layers, each
//! verified against its digest.

mod challenge;
mod credentials;
mod http;
mod layout;
mod manifest;
mod reach;
mod registry;
mod retry;
mod unreachable;
mod untrusted;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use tempfile::TempDir;

use crate::client::{Audience, NamedBy};
use crate::fault::Fault;
use crate::image::ImageConfig;
use crate::job::{Job, UnpackedImage};
use crate::layers::{Reuse, Slot};
use crate::progress::PullStep;
use crate::source::LayoutSelect;
use crate::unpack::Whiteouts;

pub use credentials::{BadCredentials, check_credentials};
pub use registry::RegistryOptions;
pub(crate) use unreachable::UnreachableRegistries;

use layout::Layout;
use manifest::{Blob, Chosen};
use registry::Registry;

/// Layers of one image that are fetched at the same time.
const FETCHES: usize = 3;

/// A source of blobs.
enum Origin {
    Registry(Box<Registry>),
    Layout(Layout),
}

/// A blob's file: a temporary one, removed after use, or an existing one of a layout.
enum Fetched {
    Temporary { file: PathBuf, _scratch: TempDir },
    Existing(PathBuf),
}

impl Origin {
    /// Who may use the layers that it delivers.
    fn audience(&self) -> Audience {
        match self {
            Self::Registry(registry) => registry.audience().clone(),
            Self::Layout(_) => Audience::Everyone,
        }
    }

    /// A manifest or index by its digest, or the one that the source names. Returns the text and its verified digest.
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
                "the image's configuration has {} bytes; at most {allowed} are allowed",
                blob.size
            )));
        }
        match self {
            Self::Registry(registry) => {
                job.meter.expect_bytes(blob.size);
                let fetched = registry.blob(blob, job).await?;
                let Fetched::Temporary { file, .. } = &fetched else {
                    return Err(Fault::refused("the blob has no file"));
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
                layout.blob(&blob.digest).map(Fetched::Existing)
            }
        }
    }
}

pub(crate) async fn from_registry(
    job: &Job,
    reference: &str,
    named_by: NamedBy,
    options: &RegistryOptions,
    unreachable_registries: &UnreachableRegistries,
) -> Result<UnpackedImage, Fault> {
    let registry = Registry::connect(reference, named_by, options, unreachable_registries).await?;
    image(job, &Origin::Registry(Box::new(registry))).await
}

pub(crate) async fn from_layout(
    job: &Job,
    dir: &Path,
    select: &LayoutSelect,
) -> Result<UnpackedImage, Fault> {
    image(job, &Origin::Layout(Layout::open(dir, select)?)).await
}

async fn image(job: &Job, origin: &Origin) -> Result<UnpackedImage, Fault> {
    let (digest, manifest) = resolve(origin).await?;
    let config = manifest::parse_config(&origin.read(&manifest.config, job).await?)?;
    if config.diff_ids.len() != manifest.layers.len() {
        return Err(Fault::refused(format!(
            "the image has {} layers but its configuration names {}",
            manifest.layers.len(),
            config.diff_ids.len()
        )));
    }
    job.meter.stage(PullStep::Fetching);
    let mut remaining: Vec<(Blob, String)> = manifest.layers.into_iter().zip(config.diff_ids).collect();
    // Topmost first, and each layer once: the upper copy of a layer hides the lower one.
    remaining.reverse();
    let mut seen = std::collections::HashSet::new();
    remaining.retain(|(_, diff_id)| seen.insert(diff_id.clone()));
    let audience = origin.audience();
    let reusable = job.reusable_layers(&audience).await?;
    let missing = remaining.iter().filter(|(_, diff_id)| !reusable.contains(diff_id));
    let sizes = missing.map(|(blob, _)| blob.size);
    let _turn = job.begin_transfer(sizes.fold(0, u64::saturating_add)).await?;
    // Other pulls may have stored some of them meanwhile.
    let reusable = job.reusable_layers(&audience).await?;
    let mut fetches = Vec::new();
    for (blob, diff_id) in &remaining {
        let (reuse, missing_bytes) = match reusable.contains(diff_id) {
            true => (Reuse::Allowed, 0),
            false => (Reuse::Forbidden, blob.size),
        };
        job.meter.expect_bytes(missing_bytes);
        let slot = job.layers.slot(&audience, diff_id);
        fetches.push(layer(job, origin, blob, slot, reuse, missing_bytes));
    }
    let mut layers: Vec<Arc<Slot>> =
        futures_util::stream::iter(fetches).buffered(FETCHES).try_collect().await?;
    drop_hidden(job, &mut layers).await;
    Ok(UnpackedImage {
        digest,
        audience,
        layers,
        config: config.config,
        stand_in: None,
        versions: vec![],
        built: vec![],
    })
}

/// Follows an index to the manifest for this machine. Returns the digest of the index or manifest that the source
/// names.
async fn resolve(origin: &Origin) -> Result<(String, manifest::Manifest), Fault> {
    let (text, first) = origin.manifest(None).await?;
    let mut chosen = manifest::parse(&text)?;
    for _ in 0..manifest::NESTING {
        match chosen {
            Chosen::Manifest(manifest) => return Ok((first, manifest)),
            Chosen::Next(digest) => chosen = manifest::parse(&origin.manifest(Some(&digest)).await?.0)?,
        }
    }
    Err(Fault::refused(format!("the image has more than {} nested indexes", manifest::NESTING)))
}

async fn layer(
    job: &Job,
    origin: &Origin,
    blob: &Blob,
    slot: Arc<Slot>,
    reuse: Reuse,
    missing_bytes: u64,
) -> Result<Arc<Slot>, Fault> {
    let diff_id = slot.id.as_str();
    let mut by_others = missing_bytes;
    let make = async {
        by_others = 0;
        let fetched = origin.fetch(blob, job).await?;
        let file = match &fetched {
            Fetched::Temporary { file, .. } | Fetched::Existing(file) => file.clone(),
        };
        let (unpacked, scratch) = job.unpack_file(file, Whiteouts::Honour).await?;
        // A blob from a registry was verified during the transfer; one of a layout is verified here.
        for (what, want, got) in [
            ("blob", blob.digest.as_str(), format!("sha256:{}", unpacked.blob_id)),
            ("unpacked layer", &format!("sha256:{diff_id}"), format!("sha256:{}", unpacked.diff_id)),
        ] {
            if want != got {
                return Err(Fault::refused(format!(
                    "the {what} does not match its digest: expected {want}, received {got}"
                )));
            }
        }
        Ok(scratch)
    };
    slot.fill(&job.store, reuse, make).await?;
    job.meter.add(by_others);
    Ok(slot)
}

/// Drops the layers below one whose root is opaque: overlayfs ignores that mark at the root of a layer.
async fn drop_hidden(job: &Job, layers: &mut Vec<Arc<Slot>>) {
    for at in 0..layers.len() {
        let opaque = |tree: &Path| {
            let mut value = [0_u8; 1];
            matches!(rustix::fs::getxattr(tree, "trusted.overlay.opaque", &mut value[..]), Ok(1))
                && value == *b"y"
        };
        if layers[at].with_tree(&job.store, opaque).await {
            layers.truncate(at + 1);
            return;
        }
    }
}

/// The used part of an image's configuration.
struct Config {
    config: ImageConfig,
    /// In hexadecimal, lowest layer first.
    diff_ids: Vec<String>,
}
