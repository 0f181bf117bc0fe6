//! An image in a directory in the OCI image layout. Digests are verified as with a registry, because the directory is
//! untrusted.

use std::io::Read;
use std::path::{Path, PathBuf};

use oci_client::manifest::OciImageIndex;

use super::manifest::TEXT_BYTES;
use crate::error::FailureKind;
use crate::fault::Fault;
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
    pub(super) fn open(dir: &Path, select: &LayoutSelect) -> Result<Self, Fault> {
        let file = dir.join("index.json");
        let missing = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => Fault::new(
                FailureKind::NotFound,
                format!("{} is not an OCI layout: it has no index.json", dir.display()),
            ),
            _ => Fault::io(format!("read {}", file.display()))(e),
        };
        let index = read_bounded(&file).map_err(missing)?;
        let parsed: OciImageIndex = serde_json::from_slice(&index)
            .map_err(|e| Fault::refused(format!("{} cannot be read", file.display())).caused_by(e))?;
        let tag_of = |annotations: &Option<std::collections::BTreeMap<String, String>>| {
            annotations.as_ref().and_then(|have| have.get(REF_NAME)).cloned()
        };
        let none = |what: &str| {
            let mut tags: Vec<String> =
                parsed.manifests.iter().filter_map(|entry| tag_of(&entry.annotations)).collect();
            tags.truncate(20);
            Fault::new(
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

    pub(super) async fn manifest(&self, digest: Option<&str>) -> Result<(Vec<u8>, String), Fault> {
        match digest.or(self.start.as_deref()) {
            Some(digest) => Ok((self.text(digest).await?, digest.to_owned())),
            None => Ok((self.index.clone(), format!("sha256:{}", sha256_hex(&self.index)))),
        }
    }

    /// A small blob, verified.
    pub(super) async fn text(&self, digest: &str) -> Result<Vec<u8>, Fault> {
        let path = self.blob(digest)?;
        let read = base::blocking(move || read_bounded(&path)).await;
        let text = read.map_err(Fault::io(format!("read blob {digest}")))?;
        let got = format!("sha256:{}", sha256_hex(&text));
        if got != digest {
            return Err(Fault::refused(format!(
                "a blob does not match its digest: expected {digest}, received {got}"
            )));
        }
        Ok(text)
    }

    /// The path of a blob. Its content is verified when it is read.
    pub(super) fn blob(&self, digest: &str) -> Result<PathBuf, Fault> {
        if !is_sha256(digest) {
            return Err(Fault::refused(format!(
                "digest '{}' is not sha256: and 64 hexadecimal digits",
                digest.escape_debug()
            )));
        }
        let path = self.dir.join("blobs/sha256").join(digest.trim_start_matches("sha256:"));
        match path.symlink_metadata() {
            Ok(meta) if meta.is_file() => Ok(path),
            _ => {
                Err(Fault::new(FailureKind::NotFound, format!("{} has no blob {digest}", self.dir.display())))
            }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A layout with these manifests, as digit of the digest and tag.
    fn layout(manifests: &[(char, Option<&str>)]) -> tempfile::TempDir {
        let entry = |(digit, tag): &(char, Option<&str>)| {
            let mut entry = json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest(*digit), "size": 2
            });
            if let Some(tag) = tag {
                entry["annotations"] = json!({ REF_NAME: tag });
            }
            entry
        };
        let manifests: Vec<Value> = manifests.iter().map(entry).collect();
        let dir = tempfile::tempdir().unwrap();
        let index = json!({ "schemaVersion": 2, "manifests": manifests });
        std::fs::write(dir.path().join("index.json"), index.to_string()).unwrap();
        dir
    }

    fn digest(digit: char) -> String {
        format!("sha256:{}", digit.to_string().repeat(64))
    }

    /// The digest of what a selection names, or the kind of the error and its text.
    fn start(dir: &Path, select: &LayoutSelect) -> Result<Option<String>, (FailureKind, String)> {
        let opened = Layout::open(dir, select);
        opened.map(|layout| layout.start).map_err(|fault| (fault.kind, fault.reason))
    }

    #[test]
    fn a_tag_or_a_digest_selects_one_image_of_several() {
        let dir = layout(&[('1', Some("v1")), ('2', Some("v2"))]);
        assert_eq!(start(dir.path(), &LayoutSelect::Tag("v2".to_owned())), Ok(Some(digest('2'))));
        // Whether there is a blob is seen when it is read.
        assert_eq!(start(dir.path(), &LayoutSelect::Digest(digest('3'))), Ok(Some(digest('3'))));
    }

    #[test]
    fn a_tag_that_is_missing_names_those_that_are_there() {
        let dir = layout(&[('1', Some("v1")), ('2', None), ('3', Some("v3"))]);
        let (kind, reason) = start(dir.path(), &LayoutSelect::Tag("v2".to_owned())).unwrap_err();
        assert_eq!(kind, FailureKind::NotFound);
        assert!(reason.ends_with("has no image v2; it has v1, v3"), "{reason}");
    }

    #[test]
    fn without_a_selection_there_must_be_one_image() {
        let only = |manifests: &[(char, Option<&str>)]| start(layout(manifests).path(), &LayoutSelect::Only);
        assert_eq!(only(&[('1', Some("v1"))]), Ok(Some(digest('1'))));
        // Entries for several architectures: the index itself is the image.
        assert_eq!(only(&[('1', None), ('2', None)]), Ok(None));
        assert_eq!(only(&[('1', Some("v1")), ('2', None)]), Ok(None));
        for ambiguous in [&[][..], &[('1', Some("v1")), ('2', Some("v2"))]] {
            assert_eq!(only(ambiguous).unwrap_err().0, FailureKind::NotFound);
        }
    }

    #[test]
    fn a_directory_without_an_index_is_no_layout() {
        let dir = tempfile::tempdir().unwrap();
        let (kind, reason) = start(dir.path(), &LayoutSelect::Only).unwrap_err();
        assert!(
            kind == FailureKind::NotFound && reason.ends_with("is not an OCI layout: it has no index.json")
        );
        std::fs::write(dir.path().join("index.json"), "[]").unwrap();
        assert_ne!(start(dir.path(), &LayoutSelect::Only).unwrap_err().0, FailureKind::NotFound);
    }

    #[tokio::test]
    async fn blobs_are_files_below_the_layout_with_the_content_of_their_digest() {
        let dir = layout(&[]);
        let blobs = dir.path().join("blobs/sha256");
        std::fs::create_dir_all(&blobs).unwrap();
        let good = sha256_hex(b"content");
        std::fs::write(blobs.join(&good), "content").unwrap();
        let forged = "2".repeat(64);
        std::fs::write(blobs.join(&forged), "other content").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", blobs.join("3".repeat(64))).unwrap();
        let layout = Layout::open(dir.path(), &LayoutSelect::Digest(digest('1'))).unwrap();
        assert_eq!(layout.text(&format!("sha256:{good}")).await.unwrap(), b"content");
        let refused = layout.text(&digest('2')).await.unwrap_err();
        assert!(refused.reason.contains("does not match its digest"), "{}", refused.reason);
        // A link, and what is missing.
        for digit in ['3', '4'] {
            assert_eq!(layout.blob(&digest(digit)).unwrap_err().kind, FailureKind::NotFound);
        }
        for text in ["sha256:../../../etc/passwd", "sha512:1", "", "latest"] {
            let refused = layout.blob(text).unwrap_err();
            assert!(refused.kind != FailureKind::NotFound, "{text}");
        }
    }

    #[tokio::test]
    async fn the_index_is_the_manifest_when_it_is_the_image() {
        let dir = layout(&[('1', None), ('2', None)]);
        let layout = Layout::open(dir.path(), &LayoutSelect::Only).unwrap();
        let (text, digest) = layout.manifest(None).await.unwrap();
        assert_eq!(text, std::fs::read(dir.path().join("index.json")).unwrap());
        assert_eq!(digest, format!("sha256:{}", sha256_hex(&text)));
    }
}
