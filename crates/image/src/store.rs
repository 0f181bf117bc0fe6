//! The image directory on disk, and the only module that changes it.
//!
//! ```text
//! layers/<sha256 of the tar>/   unpacked trees, complete when they appear
//! images/<name>.json            records; a record's layers exist
//! builds/<sha256 of key>.json   the layer of a Debian build, for reuse
//! tmp/<process>/                work in progress of one process, locked while it lives
//! lock                          shared by pulls, exclusive for garbage collection
//! ```
//! Layers and records are synced, then renamed into place. A process that dies leaves its `tmp` directory,
//! unlocked, and the next [`Store::open`] of any process removes it.

mod record;

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tempfile::TempDir;

pub(crate) use record::ImageRecord;

use crate::client::Audience;
use crate::source::is_hex64;

pub(crate) struct Store {
    root: PathBuf,
    area: PathBuf,
    /// Holds the lock on `area` for as long as this process uses it.
    _area_lock: OwnedFd,
}

impl Store {
    /// Creates the directories and a work area, and removes the work areas of dead processes.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        for dir in ["layers", "images", "builds", "tmp"] {
            std::fs::create_dir_all(root.join(dir))?;
        }
        // Layers contain setuid programs; only root may traverse the directory.
        std::fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let root = root.canonicalize()?;
        // One process at a time: otherwise a new area could be swept before it is locked.
        let _opening = lock_file(&root.join("tmp.lock"), FlockOperation::LockExclusive)?;
        sweep(&root.join("tmp"))?;
        let area = tempfile::Builder::new().prefix("p").tempdir_in(root.join("tmp"))?.keep();
        let area_lock = open_dir(&area)?;
        flock(&area_lock, FlockOperation::LockExclusive)?;
        Ok(Self { root, area, _area_lock: area_lock })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn layer_path(&self, id: &str) -> PathBuf {
        self.root.join("layers").join(id)
    }

    pub(crate) fn has_layer(&self, id: &str) -> bool {
        is_hex64(id) && self.layer_path(id).is_dir()
    }

    /// A work directory, removed on drop.
    pub(crate) fn scratch(&self) -> io::Result<TempDir> {
        tempfile::Builder::new().prefix("w").tempdir_in(&self.area)
    }

    /// Held during a pull: no layer is removed while it is held. Blocks while another process collects garbage.
    pub(crate) fn lock_for_use(&self) -> io::Result<File> {
        lock_file(&self.root.join("lock"), FlockOperation::LockShared)
    }

    /// Held while layers are removed; `None` while any process pulls.
    pub(crate) fn lock_for_removal(&self) -> io::Result<Option<File>> {
        match lock_file(&self.root.join("lock"), FlockOperation::NonBlockingLockExclusive) {
            Ok(lock) => Ok(Some(lock)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Moves unpacked trees into the store. Afterwards they survive a power failure.
    pub(crate) fn commit_layers(&self, trees: &[(String, PathBuf)]) -> io::Result<()> {
        if trees.is_empty() {
            return Ok(());
        }
        let layers = open_dir(&self.root.join("layers"))?;
        rustix::fs::syncfs(&layers)?;
        for (id, tree) in trees {
            match std::fs::rename(tree, self.layer_path(id)) {
                Err(e) if self.has_layer(id) => {
                    tracing::debug!(layer = %id, error = %e, "layer exists already");
                }
                other => other?,
            }
        }
        Ok(rustix::fs::fsync(&layers)?)
    }

    pub(crate) fn write_record(&self, record: &ImageRecord) -> io::Result<()> {
        self.write_json(&self.record_path(&record.name), record)
    }

    /// All readable records whose layers exist. Others are logged and ignored.
    pub(crate) fn records(&self) -> io::Result<Vec<ImageRecord>> {
        let mut records = Vec::new();
        for entry in std::fs::read_dir(self.root.join("images"))? {
            let path = entry?.path();
            match read_json::<ImageRecord>(&path) {
                Ok(record) if self.record_path(&record.name) != path => {
                    tracing::warn!(path = %path.display(), name = %record.name, "image record ignored: its file name is that of another image");
                }
                Ok(record) => match record.layers.iter().find(|id| !self.has_layer(id)) {
                    None => records.push(record),
                    Some(layer) => {
                        tracing::warn!(image = %record.name, %layer, "image record ignored: a layer is missing");
                    }
                },
                Err(e) => tracing::warn!(path = %path.display(), error = %e, "image record ignored"),
            }
        }
        Ok(records)
    }

    /// The layers that a pull for this audience may use without receiving them.
    pub(crate) fn layers_for(&self, audience: &Audience) -> io::Result<HashSet<String>> {
        let is_for = |record: &ImageRecord| record.audience.as_ref().is_some_and(|of| of.includes(audience));
        Ok(self.records()?.into_iter().filter(is_for).flat_map(|record| record.layers).collect())
    }

    pub(crate) fn record(&self, name: &str) -> Option<ImageRecord> {
        let record = read_json::<ImageRecord>(&self.record_path(name)).ok()?;
        (record.name == name && record.layers.iter().all(|id| self.has_layer(id))).then_some(record)
    }

    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        crate::limits::free_bytes(&self.root)
    }

    /// The time of the last [`Self::touch_record`], or that of the record itself.
    pub(crate) fn record_used(&self, name: &str) -> io::Result<SystemTime> {
        std::fs::metadata(self.record_path(name))?.modified()
    }

    /// Notes that the image is used now.
    pub(crate) fn touch_record(&self, name: &str) -> io::Result<()> {
        File::options().write(true).open(self.record_path(name))?.set_modified(SystemTime::now())
    }

    /// Returns whether the record existed.
    pub(crate) fn remove_record(&self, name: &str) -> io::Result<bool> {
        match std::fs::remove_file(self.record_path(name)) {
            Ok(()) => base::sync_dir(&self.root.join("images")).map(|()| true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The layer of an earlier build of `key`, if it still exists.
    pub(crate) fn built(&self, key: &str) -> Option<String> {
        let (have, id) = read_json::<(String, String)>(&self.build_path(key)).ok()?;
        (have == key && self.has_layer(&id)).then_some(id)
    }

    pub(crate) fn write_built(&self, key: &str, layer: &str) -> io::Result<()> {
        self.write_json(&self.build_path(key), &(key, layer))
    }

    /// Ids of all layers, for garbage collection.
    pub(crate) fn layer_ids(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(self.root.join("layers"))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        Ok(names.into_iter().filter(|name| is_hex64(name)).collect())
    }

    /// Moves a layer out of the store; its files are removed when the returned directory is dropped.
    pub(crate) fn remove_layer(&self, id: &str) -> io::Result<TempDir> {
        let grave = self.scratch()?;
        std::fs::rename(self.layer_path(id), grave.path().join("tree"))?;
        Ok(grave)
    }

    /// Removes the records of builds whose layers are missing.
    pub(crate) fn remove_stale_builds(&self) -> io::Result<()> {
        for entry in std::fs::read_dir(self.root.join("builds"))? {
            let path = entry?.path();
            let has_layer = read_json::<(String, String)>(&path).is_ok_and(|(_, id)| self.has_layer(&id));
            if !has_layer {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn record_path(&self, name: &str) -> PathBuf {
        record_path(&self.root, name)
    }

    fn build_path(&self, key: &str) -> PathBuf {
        self.root.join("builds").join(format!("{}.json", crate::unpack::sha256_hex(key.as_bytes())))
    }

    fn write_json(&self, path: &Path, value: &impl serde::Serialize) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.area)?;
        file.write_all(&serde_json::to_vec_pretty(value)?)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        base::sync_parent(path)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_dir_all(&self.area) {
            tracing::warn!(area = %self.area.display(), error = %e, "cannot remove the image work area; the next start removes it");
        }
    }
}

/// A file name has at most 255 bytes.
const ENCODED_BYTES: usize = 240;

/// Bytes on disk below `dir`. Hard links are counted once.
pub(crate) fn tree_bytes(dir: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let meta = entry.metadata()?;
            if meta.is_dir() {
                open.push(entry.path());
            }
            bytes +=
                if meta.is_dir() { meta.blocks() * 512 } else { meta.blocks() * 512 / meta.nlink().max(1) };
        }
    }
    Ok(bytes)
}

/// Encodes an image name as a file name: a byte that is not a letter, digit, dot, dash or underscore becomes `%` and
/// two digits. If that is too long, the name is `%%` and a digest.
fn record_path(root: &Path, name: &str) -> PathBuf {
    root.join("images").join(format!("{}.json", encode(name)))
}

/// Whether the image directory `root`, which need not exist, has an image of this name. Changes nothing.
pub fn is_stored(root: &Path, name: &str) -> bool {
    record_path(root, name).is_file()
}

fn encode(name: &str) -> String {
    let is_literal = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    let encoded: String = name
        .bytes()
        .map(|b| if is_literal(b) { char::from(b).to_string() } else { format!("%{b:02x}") })
        .collect();
    if encoded.len() <= ENCODED_BYTES {
        return encoded;
    }
    format!("%%{}", crate::unpack::sha256_hex(name.as_bytes()))
}

/// Removes the areas of dead processes, which are unlocked.
fn sweep(tmp: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(tmp)? {
        match sweep_one(&entry?.path()) {
            // A process that ends normally removes its own area concurrently.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            swept => swept?,
        }
    }
    Ok(())
}

fn sweep_one(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        return std::fs::remove_file(path);
    }
    if flock(&open_dir(path)?, FlockOperation::NonBlockingLockExclusive).is_ok() {
        tracing::info!(path = %path.display(), "removing the work area of a dead process");
        std::fs::remove_dir_all(path)?;
    }
    Ok(())
}

fn lock_file(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    flock(&file, operation)?;
    Ok(file)
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

const RECORD_BYTES: u64 = 4 << 20;

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, RECORD_BYTES), &mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests;
