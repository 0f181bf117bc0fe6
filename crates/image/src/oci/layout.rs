//! An image in a directory in the OCI image layout. Digests are verified as with a registry, because the directory is
//! untrusted.

use std::io::Read;
use std::path::{Path, PathBuf};

use oci_client::manifest::OciImageIndex;

use super::manifest::TEXT_BYTES;
use crate::error::FailureKind;
use crate::fault::ImageFault;
use crate::source::{LayoutSelect, is_sha256};
use crate::unpack::sha256_hex;

const REF_NAME: &str = "org.opencontainers.image.ref.name";

pub(super) struct Layout {
    dir: PathBuf,
    /// The part that the source selects: an entry of `index.json`, or the whole index.
    start: Option<String>,
    index: Vec<u8>,
}

impl Layout {
    pub(super) fn open(dir: &Path, select: &LayoutSelect) -> Result<Self, ImageFault> {
        let file = dir.join("index.json");
        let missing = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => ImageFault::new(
                FailureKind::NotFound,
                format!("{} is not an OCI layout: it has no index.json", dir.display()),
            ),
            _ => ImageFault::io(format!("read {}", file.display()))(e),
        };
        let index = read_bounded(&file).map_err(missing)?;
        let parsed: OciImageIndex = serde_json::from_slice(&index)
            .map_err(|e| ImageFault::refused(format!("{} cannot be read", file.display())).caused_by(e))?;
        let tag_of = |annotations: &Option<std::collections::BTreeMap<String, String>>| {
            annotations.as_ref().and_then(|have| have.get(REF_NAME)).cloned()
        };
        let none = |what: &str| {
            let mut tags: Vec<String> =
                parsed.manifests.iter().filter_map(|entry| tag_of(&entry.annotations)).collect();
            tags.truncate(20);
            ImageFault::new(
                FailureKind::NotFound,
                format!("{} has no image {what}; it has {}", dir.display(), tags.join(", ")),
            )
        };
        let start = match select {
            LayoutSelect::Digest(digest) => Some(digest.clone()),
            LayoutSelect::Tag(tag) => {
                let found =
                    parsed.manifests.iter().find(|entry| tag_of(&entry.annotations).as_deref() == Some(tag));
                Some(found.ok_or_else(|| none(tag))?.digest.clone())
            }
            LayoutSelect::Only => match parsed.manifests.as_slice() {
                [] => return Err(none("at all")),
                [only] => Some(only.digest.clone()),
                several
                    if several.iter().filter(|entry| tag_of(&entry.annotations).is_some()).count() > 1 =>
                {
                    return Err(none("without a tag"));
                }
                // The index has entries for several architectures.
                _ => None,
            },
        };
        Ok(Self { dir: dir.to_path_buf(), start, index })
    }

    pub(super) async fn manifest(&self, digest: Option<&str>) -> Result<(Vec<u8>, String), ImageFault> {
        match digest.or(self.start.as_deref()) {
            Some(digest) => Ok((self.text(digest).await?, digest.to_owned())),
            None => Ok((self.index.clone(), format!("sha256:{}", sha256_hex(&self.index)))),
        }
    }

    /// A small blob, verified.
    pub(super) async fn text(&self, digest: &str) -> Result<Vec<u8>, ImageFault> {
        let path = self.blob(digest)?;
        let read = base::blocking(move || read_bounded(&path)).await;
        let text = read.map_err(ImageFault::io(format!("read blob {digest}")))?;
        let got = format!("sha256:{}", sha256_hex(&text));
        if got != digest {
            return Err(ImageFault::refused(format!(
                "a blob does not match its digest: expected {digest}, received {got}"
            )));
        }
        Ok(text)
    }

    /// The path of a blob. Its content is verified when it is read.
    pub(super) fn blob(&self, digest: &str) -> Result<PathBuf, ImageFault> {
        if !is_sha256(digest) {
            return Err(ImageFault::refused(format!(
                "digest '{}' is not sha256: and 64 hexadecimal digits",
                digest.escape_debug()
            )));
        }
        let path = self.dir.join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
        match path.symlink_metadata() {
            Ok(meta) if meta.is_file() => Ok(path),
            _ => Err(ImageFault::new(
                FailureKind::NotFound,
                format!("{} has no blob {digest}", self.dir.display()),
            )),
        }
    }
}

fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(TEXT_BYTES + 1).read_to_end(&mut text)?;
    if text.len() as u64 > TEXT_BYTES {
        return Err(std::io::Error::other(format!("it has more than {TEXT_BYTES} bytes")));
    }
    Ok(text)
}
