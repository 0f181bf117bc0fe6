//! What this host has in the object store, on the local disk: a copy of each manifest.
//!
//! ```text
//! DIR/host       the name of this host in the object store, made at the first start
//! DIR/ID.new     a manifest that may be in the object store
//! DIR/ID.json    a manifest that is in the object store
//! DIR/ID.handed  empty: another host has adopted it, and may need the copy
//! DIR/location   where the objects are
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use base::{IgnorePoison, sync_dir};
use rand::Rng;

use crate::chunk::ChunkHash;
use crate::manifest::{Manifest, SnapshotPart};
use crate::secret::Secrets;

const COMPLETE: &str = "json";
const PENDING: &str = "new";
const HANDED: &str = "handed";
const LOCATION: &str = "location";

pub struct Ledger {
    dir: PathBuf,
    pub host: String,
    state: Mutex<LedgerState>,
}

#[derive(Default)]
struct LedgerState {
    /// Whether each is complete.
    manifests: BTreeMap<String, bool>,
    chunks: HashMap<ChunkKey, Chunk>,
    handed_over: BTreeSet<String>,
    /// Complete manifests that are not authenticated with the present secret.
    outdated: BTreeSet<String>,
    /// The manifests that have a part, by the part's account and name.
    parts: HashMap<(String, String), BTreeSet<String>>,
}

/// Chunks are shared within an account.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    pub account: String,
    pub hash: ChunkHash,
}

#[derive(Default)]
struct Chunk {
    /// Uses by manifests of the ledger.
    uses: u32,
    is_stored: bool,
}

/// What the object store lacks of what the ledger has.
#[derive(Default)]
pub struct Lost {
    /// The ids of those whose chunks are all there, and whose manifest is lost or in an outdated form.
    pub without_manifest: Vec<String>,
    /// The ids of those that lack chunks.
    pub incomplete: Vec<String>,
}

impl Ledger {
    /// Reads the directory. Its files are trusted: only this host writes them.
    pub fn open(dir: &Path, secrets: &Secrets) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let host = host_name(dir)?;
        let ledger = Self { dir: dir.to_owned(), host, state: Mutex::default() };
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let is_complete = match path.extension().and_then(|extension| extension.to_str()) {
                Some(COMPLETE) => true,
                Some(PENDING) => false,
                Some(HANDED) => {
                    let id = path.file_stem().map(|id| id.to_string_lossy().into_owned());
                    ledger.lock().handed_over.extend(id);
                    continue;
                }
                _ => continue,
            };
            match Manifest::from_copy(&fs::read(&path)?) {
                Ok((manifest, code)) => {
                    let mut state = ledger.lock();
                    state.add(&manifest, is_complete);
                    if is_complete && !secrets.is_current(code) {
                        state.outdated.insert(manifest.id);
                    }
                }
                // A crash has interrupted its writing. The reconciliation finds what is stored of it.
                Err(error) => {
                    tracing::warn!(path = %path.display(), error, "dropping a damaged copy of a manifest");
                    fs::remove_file(&path)?;
                }
            }
        }
        Ok(ledger)
    }

    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().ignore_poison()
    }

    fn path(&self, id: &str, extension: &str) -> PathBuf {
        self.dir.join(format!("{id}.{extension}"))
    }

    pub fn has(&self, id: &str) -> bool {
        self.lock().manifests.get(id) == Some(&true)
    }

    pub fn has_any(&self) -> bool {
        self.lock().manifests.values().any(|is_complete| *is_complete)
    }

    pub fn ids(&self) -> Vec<String> {
        self.lock().manifests.keys().cloned().collect()
    }

    /// The manifest of a snapshot that this host has stored.
    pub fn manifest(&self, id: &str) -> io::Result<Option<Manifest>> {
        if !self.has(id) {
            return Ok(None);
        }
        self.read(id, COMPLETE).map(Some)
    }

    fn read(&self, id: &str, extension: &str) -> io::Result<Manifest> {
        let (manifest, _) =
            Manifest::from_copy(&fs::read(self.path(id, extension))?).map_err(io::Error::other)?;
        Ok(manifest)
    }

    /// A part that a manifest of the account has.
    pub fn part(&self, account: &str, name: &str) -> io::Result<Option<SnapshotPart>> {
        let key = (account.to_owned(), name.to_owned());
        let found = self.lock().parts.get(&key).and_then(|ids| ids.first().cloned());
        let Some(id) = found else { return Ok(None) };
        Ok(self.read(&id, COMPLETE)?.part(name).cloned())
    }

    /// Whether a manifest has the chunk, or it was left by a failed upload.
    pub fn knows(&self, key: &ChunkKey) -> bool {
        self.lock().chunks.contains_key(key)
    }

    pub fn is_stored(&self, key: &ChunkKey) -> bool {
        self.lock().chunks.get(key).is_some_and(|chunk| chunk.is_stored)
    }

    /// A chunk is about to be stored. Until a manifest has it, it is unreferenced.
    pub fn chunk_begins(&self, key: &ChunkKey) {
        self.lock().chunks.entry(key.clone()).or_default();
    }

    pub fn chunk_stored(&self, key: ChunkKey) {
        self.lock().chunks.entry(key).or_default().is_stored = true;
    }

    /// A chunk is about to be removed, also if the response to that is lost.
    pub fn chunk_removal_begins(&self, key: &ChunkKey) {
        self.lock().chunks.entry(key.clone()).or_default().is_stored = false;
    }

    pub fn chunk_removed(&self, key: &ChunkKey) {
        self.lock().chunks.remove(key);
    }

    /// Chunks that no manifest has.
    pub fn unreferenced(&self) -> Vec<ChunkKey> {
        let state = self.lock();
        state.chunks.iter().filter(|(_, chunk)| chunk.uses == 0).map(|(key, _)| key.clone()).collect()
    }

    /// Records where the objects are. Returns the earlier location if the ledger has objects at another one.
    pub fn check_location(&self, location: &str) -> io::Result<Option<String>> {
        let path = self.dir.join(LOCATION);
        match fs::read_to_string(&path) {
            Ok(before) if before != location && !self.lock().manifests.is_empty() => Ok(Some(before)),
            Ok(before) if before == location => Ok(None),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::write(path, location).map(|()| None),
        }
    }

    pub fn handed_over(&self) -> Vec<String> {
        self.lock().handed_over.iter().cloned().collect()
    }

    pub fn is_handed_over(&self, id: &str) -> bool {
        self.lock().handed_over.contains(id)
    }

    pub fn set_handed_over(&self, id: &str, is_handed_over: bool) -> io::Result<()> {
        let path = self.path(id, HANDED);
        if is_handed_over {
            File::create(path)?.sync_all()?;
            self.lock().handed_over.insert(id.to_owned());
        } else {
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.lock().handed_over.remove(id);
        }
        sync_dir(&self.dir)
    }

    /// A manifest is about to be stored, whose chunks are.
    pub fn begin(&self, manifest: &Manifest, object: &[u8]) -> io::Result<()> {
        self.forget(&manifest.id)?;
        let path = self.path(&manifest.id, PENDING);
        let mut file = File::create(&path)?;
        file.write_all(object)?;
        file.sync_all()?;
        sync_dir(&self.dir)?;
        self.lock().add(manifest, false);
        Ok(())
    }

    /// The manifest is stored.
    pub fn complete(&self, manifest: &Manifest) -> io::Result<()> {
        let id = &manifest.id;
        fs::rename(self.path(id, PENDING), self.path(id, COMPLETE))?;
        sync_dir(&self.dir)?;
        let mut state = self.lock();
        state.name_parts(manifest);
        state.manifests.insert(id.clone(), true);
        Ok(())
    }

    /// The object store has a complete manifest in another form.
    pub fn replace(&self, manifest: &Manifest, object: &[u8]) -> io::Result<()> {
        let unfinished = self.path(&manifest.id, "tmp");
        let mut file = File::create(&unfinished)?;
        file.write_all(object)?;
        file.sync_all()?;
        fs::rename(unfinished, self.path(&manifest.id, COMPLETE))?;
        sync_dir(&self.dir)?;
        self.lock().outdated.remove(&manifest.id);
        Ok(())
    }

    /// The manifest is not stored any more. Succeeds if there is none.
    pub fn forget(&self, id: &str) -> io::Result<()> {
        let extension = match self.lock().manifests.get(id) {
            None => return Ok(()),
            Some(true) => COMPLETE,
            Some(false) => PENDING,
        };
        let manifest = self.read(id, extension)?;
        fs::remove_file(self.path(id, extension))?;
        sync_dir(&self.dir)?;
        self.lock().remove(&manifest);
        Ok(())
    }

    /// Takes what the object store really has: its chunks of this host, and the ids of the manifests. Returns what it has lost.
    pub fn compare(&self, found: HashSet<ChunkKey>, ids: &HashSet<String>) -> io::Result<Lost> {
        let mut state = self.lock();
        for (key, chunk) in &mut state.chunks {
            chunk.is_stored = found.contains(key);
        }
        for key in found {
            state.chunks.entry(key).or_default().is_stored = true;
        }
        let complete = state.manifests.iter().filter(|(_, is_complete)| **is_complete);
        let complete: Vec<String> = complete.map(|(id, _)| id.clone()).collect();
        let outdated = state.outdated.clone();
        let is_lost = state.chunks.values().any(|chunk| chunk.uses > 0 && !chunk.is_stored);
        drop(state);
        let mut lost = Lost::default();
        for id in complete {
            // Nearly always nothing is lost, and the manifests need not be read.
            if is_lost && self.lacks_chunks(&id)? {
                lost.incomplete.push(id);
            } else if !ids.contains(&id) || outdated.contains(&id) {
                lost.without_manifest.push(id);
            }
        }
        Ok(lost)
    }

    fn lacks_chunks(&self, id: &str) -> io::Result<bool> {
        let manifest = self.read(id, COMPLETE)?;
        let account = &manifest.account;
        let lacks =
            manifest.hashes().any(|hash| !self.is_stored(&ChunkKey { account: account.clone(), hash }));
        Ok(lacks)
    }
}

impl LedgerState {
    fn add(&mut self, manifest: &Manifest, is_complete: bool) {
        let account = manifest.account.clone();
        for hash in manifest.hashes() {
            let chunk = self.chunks.entry(ChunkKey { account: account.clone(), hash }).or_default();
            chunk.uses += 1;
            chunk.is_stored = true;
        }
        if is_complete {
            self.name_parts(manifest);
        }
        self.manifests.insert(manifest.id.clone(), is_complete);
    }

    fn name_parts(&mut self, manifest: &Manifest) {
        for part in &manifest.parts {
            let key = (manifest.account.clone(), part.name.clone());
            self.parts.entry(key).or_default().insert(manifest.id.clone());
        }
    }

    fn remove(&mut self, manifest: &Manifest) {
        self.manifests.remove(&manifest.id);
        self.outdated.remove(&manifest.id);
        self.parts.retain(|_, ids| {
            ids.remove(&manifest.id);
            !ids.is_empty()
        });
        for hash in manifest.hashes() {
            if let Some(chunk) = self.chunks.get_mut(&ChunkKey { account: manifest.account.clone(), hash }) {
                chunk.uses = chunk.uses.saturating_sub(1);
            }
        }
    }
}

/// Where the objects are that the ledger in a directory lists; `None` if it lists none. Nothing is changed, for a host that has no
/// object store any more.
pub fn location_of_listed(dir: &Path) -> io::Result<Option<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    let mut lists_any = false;
    for entry in entries {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        lists_any |= matches!(extension, Some(COMPLETE | PENDING));
    }
    if !lists_any {
        return Ok(None);
    }
    match fs::read_to_string(dir.join(LOCATION)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        location => location.map(Some),
    }
}

/// Reads the name of this host, or makes one.
fn host_name(dir: &Path) -> io::Result<String> {
    let path = dir.join("host");
    match fs::read_to_string(&path) {
        Ok(name) if !name.is_empty() => return Ok(name),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut random = [0; 16];
    rand::rng().fill_bytes(&mut random);
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let unfinished = dir.join("host.tmp");
    let mut file = File::create(&unfinished)?;
    file.write_all(name.as_bytes())?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    sync_dir(dir)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_that_of_what_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(location_of_listed(&dir.path().join("missing")).unwrap(), None);
        fs::write(dir.path().join(LOCATION), "s3://bucket/prefix").unwrap();
        fs::write(dir.path().join("host"), "one").unwrap();
        assert_eq!(location_of_listed(dir.path()).unwrap(), None);
        for extension in [COMPLETE, PENDING] {
            let manifest = dir.path().join(format!("snap_aaaaaaaa.{extension}"));
            fs::write(&manifest, "{}").unwrap();
            assert_eq!(location_of_listed(dir.path()).unwrap().as_deref(), Some("s3://bucket/prefix"));
            let refused = crate::require_nothing_stored(dir.path()).unwrap_err().to_string();
            assert!(refused.starts_with("it was 's3://bucket/prefix' and is not set any more"), "{refused}");
            fs::remove_file(manifest).unwrap();
        }
        assert_eq!(location_of_listed(dir.path()).unwrap(), None);
        crate::require_nothing_stored(dir.path()).unwrap();
    }
}
