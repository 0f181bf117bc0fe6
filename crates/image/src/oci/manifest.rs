//! Parses manifests, indexes and configurations. A text of 4 MiB can have millions of entries, so what is kept of a list is bounded while
//! it is parsed.

mod at_most;

use serde::Deserialize;

use self::at_most::AtMost;

use super::Config;
use crate::fault::Fault;
use crate::image::ImageConfig;
use crate::source::is_sha256;

/// Limit of a manifest, index or configuration.
pub(super) const TEXT_BYTES: u64 = 4 << 20;
/// Limit of nested indexes.
pub(super) const NESTING: usize = 3;
/// overlayfs supports 500 lower layers; image builders create at most 127.
const LAYERS: usize = 127;
/// Images for several machines have some dozens.
const INDEX_ENTRIES: usize = 1_000;
const ENV_ENTRIES: usize = 1_000;
const ENV_BYTES: usize = 128 * 1024;

/// A blob, identified and verified by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blob {
    pub(super) digest: String,
    pub(super) size: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) config: Blob,
    /// Lowest first.
    pub(super) layers: Vec<Blob>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Chosen {
    Manifest(Manifest),
    /// An index; this is the digest of its entry for this machine.
    Next(String),
}

/// A manifest or an index.
#[derive(Deserialize)]
struct ManifestText {
    config: Option<Descriptor>,
    layers: Option<AtMost<Descriptor, LAYERS>>,
    manifests: Option<AtMost<IndexEntry, INDEX_ENTRIES>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: i64,
}

#[derive(Deserialize)]
struct IndexEntry {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    os: String,
    architecture: String,
    variant: Option<String>,
}

pub(super) fn parse(text: &[u8]) -> Result<Chosen, Fault> {
    let unreadable = "the manifest cannot be read";
    let parsed: ManifestText =
        serde_json::from_slice(text).map_err(|e| Fault::refused(unreadable).caused_by(e))?;
    match (parsed.config, parsed.layers, parsed.manifests) {
        (Some(config), Some(layers), _) => {
            let layers = layers.get("layers")?;
            let layers = layers.iter().map(|layer| layer_type(layer).and_then(|()| blob(layer)));
            Ok(Chosen::Manifest(Manifest {
                config: blob(&config)?,
                layers: layers.collect::<Result<_, _>>()?,
            }))
        }
        (_, _, Some(entries)) => choose(&entries.get("variants")?).map(Chosen::Next),
        _ => Err(Fault::refused(format!("{unreadable}: it has neither layers nor an index"))),
    }
}

fn blob(descriptor: &Descriptor) -> Result<Blob, Fault> {
    if !is_sha256(&descriptor.digest) {
        let digest: String = descriptor.digest.chars().take(150).collect();
        return Err(Fault::refused(format!(
            "digest '{}' is not sha256: and 64 hexadecimal digits",
            digest.escape_debug()
        )));
    }
    let size = u64::try_from(descriptor.size).map_err(|_| Fault::refused("a blob has a negative size"))?;
    Ok(Blob { digest: descriptor.digest.clone(), size })
}

/// Checks that a layer is a tar. Its first bytes tell the compression.
fn layer_type(layer: &Descriptor) -> Result<(), Fault> {
    let known = ["application/vnd.oci.image.layer.", "application/vnd.docker.image.rootfs."];
    let kind = layer.media_type.as_str();
    if known.iter().any(|start| kind.starts_with(start))
        && kind.contains(".tar")
        && !kind.contains("encrypted")
    {
        return Ok(());
    }
    let kind: String = kind.chars().take(150).collect();
    Err(Fault::refused(format!(
        "a layer is of type '{}'; allowed: OCI and Docker layers (tar, gzip, zstd)",
        kind.escape_debug()
    )))
}

/// Go's name of this machine's architecture, which images use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The entry for this machine. If there are several, the one for the most processors of the architecture.
fn choose(entries: &[IndexEntry]) -> Result<String, Fault> {
    let platform = |entry: &IndexEntry| {
        entry.platform.as_ref().map(|p| (p.os.clone(), p.architecture.clone(), p.variant.clone()))
    };
    let suits = |entry: &&IndexEntry| {
        platform(entry).is_none_or(|(os, arch, _)| os == "linux" && arch == architecture())
    };
    let rank = |entry: &&IndexEntry| match platform(entry) {
        Some((_, _, None)) => 0,
        Some((_, _, Some(variant))) if variant == "v1" || variant == "v8" => 1,
        Some(_) => 2,
        // An index with one entry may omit its platform; the configuration is checked later.
        None => 3,
    };
    let found = entries.iter().filter(suits).min_by_key(rank);
    let Some(entry) = found else {
        let has: Vec<String> = entries
            .iter()
            .filter_map(platform)
            .take(20)
            .map(|(os, arch, _)| format!("{os}/{arch}"))
            .collect();
        return Err(Fault::refused(format!(
            "the image has no variant for linux/{}; it has {}",
            architecture(),
            has.join(", ")
        )));
    };
    if !is_sha256(&entry.digest) {
        return Err(Fault::refused("the image's index names a digest other than sha256"));
    }
    Ok(entry.digest.clone())
}

#[derive(Deserialize)]
struct ConfigText {
    architecture: Option<String>,
    os: Option<String>,
    config: Option<ConfigPart>,
    rootfs: RootfsPart,
}

#[derive(Deserialize)]
struct RootfsPart {
    diff_ids: AtMost<String, LAYERS>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
struct ConfigPart {
    env: Option<AtMost<String, ENV_ENTRIES>>,
    working_dir: Option<String>,
    user: Option<String>,
}

pub(super) fn parse_config(text: &[u8]) -> Result<Config, Fault> {
    let parsed: ConfigText = serde_json::from_slice(text)
        .map_err(|e| Fault::refused("the image's configuration cannot be read").caused_by(e))?;
    let (os, arch) = (parsed.os.as_deref().unwrap_or("linux"), parsed.architecture.as_deref());
    if os != "linux" || arch.is_some_and(|arch| arch != architecture()) {
        let arch = arch.unwrap_or("unknown");
        return Err(Fault::refused(format!(
            "the image is for {os}/{arch}, this machine is linux/{}",
            architecture()
        )));
    }
    let diff_ids = parsed.rootfs.diff_ids.get("configured layers")?;
    let bad = |id: &&String| !is_sha256(id);
    if let Some(id) = diff_ids.iter().find(bad) {
        let id: String = id.chars().take(150).collect();
        return Err(Fault::refused(format!(
            "diff id '{}' is not sha256: and 64 hexadecimal digits",
            id.escape_debug()
        )));
    }
    let diff_ids = diff_ids.iter().filter_map(|id| id.strip_prefix("sha256:").map(str::to_owned)).collect();
    let part = parsed.config.unwrap_or_default();
    let env = part.env.map_or(Vec::new(), |env| env.0);
    if env.len() > ENV_ENTRIES || env.iter().map(String::len).sum::<usize>() > ENV_BYTES {
        return Err(Fault::too_big(format!(
            "the image's environment has more than {ENV_ENTRIES} entries or {ENV_BYTES} bytes"
        )));
    }
    // Drops entries without a name or value, and those that no process can have.
    let usable = |entry: &String| {
        let (key, value) = entry.split_once('=')?;
        (!key.is_empty() && !entry.contains('\0')).then(|| (key.to_owned(), value.to_owned()))
    };
    let config = ImageConfig {
        env: env.iter().filter_map(usable).collect(),
        workdir: part.working_dir.filter(|dir| dir.starts_with('/') && !dir.contains('\0')),
        user: part.user.filter(|user| !user.is_empty()),
    };
    Ok(Config { config, diff_ids })
}

#[cfg(test)]
mod tests;
