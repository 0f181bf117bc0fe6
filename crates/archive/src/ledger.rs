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

const HANDED: &str = "handed";
const LOCATION: &str = "location";

/// What this host has stored, in a directory and in memory. A change is durable when its method returns.
pub struct Ledger {
    dir: PathBuf,
    pub host: String,
    state: Mutex<LedgerState>,
}

/// How far a manifest is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ManifestState {
    /// Its chunks are stored. It may be stored, too.
    Pending,
    Complete,
}

impl ManifestState {
    const ALL: [Self; 2] = [Self::Pending, Self::Complete];

    /// The state of the manifest whose copy is in this file; `None` for other files.
    fn of_file(path: &Path) -> Option<Self> {
        let extension = path.extension()?.to_str()?;
        Self::ALL.into_iter().find(|state| state.extension() == extension)
    }

    /// The extension of the file with the copy of the manifest.
    fn extension(self) -> &'static str {
        match self {
            Self::Pending => "new",
            Self::Complete => "json",
        }
    }
}

#[derive(Default)]
struct LedgerState {
    manifests: BTreeMap<String, ManifestState>,
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
            if path.extension().is_some_and(|extension| extension == HANDED) {
                let id = path.file_stem().map(|id| id.to_string_lossy().into_owned());
                ledger.lock().handed_over.extend(id);
            }
            let Some(stored) = ManifestState::of_file(&path) else { continue };
            match Manifest::from_copy(&fs::read(&path)?) {
                Ok((manifest, code)) => {
                    let mut state = ledger.lock();
                    state.add(&manifest, stored);
                    if stored == ManifestState::Complete && !secrets.is_current(code) {
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

    /// Whether a manifest is stored completely.
    pub fn has(&self, id: &str) -> bool {
        self.lock().manifests.get(id) == Some(&ManifestState::Complete)
    }

    /// Whether any manifest is stored completely.
    pub fn has_any(&self) -> bool {
        self.lock().manifests.values().any(|stored| *stored == ManifestState::Complete)
    }

    /// The ids of all manifests, incomplete ones included.
    pub fn ids(&self) -> Vec<String> {
        self.lock().manifests.keys().cloned().collect()
    }

    /// The manifest of a snapshot that this host has stored.
    pub fn manifest(&self, id: &str) -> io::Result<Option<Manifest>> {
        if !self.has(id) {
            return Ok(None);
        }
        self.read(id, ManifestState::Complete).map(Some)
    }

    fn read(&self, id: &str, stored: ManifestState) -> io::Result<Manifest> {
        let copy = fs::read(self.path(id, stored.extension()))?;
        let (manifest, _) = Manifest::from_copy(&copy).map_err(io::Error::other)?;
        Ok(manifest)
    }

    /// A part that a manifest of the account has.
    pub fn part(&self, account: &str, name: &str) -> io::Result<Option<SnapshotPart>> {
        let key = (account.to_owned(), name.to_owned());
        let found = self.lock().parts.get(&key).and_then(|ids| ids.first().cloned());
        let Some(id) = found else { return Ok(None) };
        Ok(self.read(&id, ManifestState::Complete)?.part(name).cloned())
    }

    /// Whether a manifest has the chunk, or it was left by a failed upload.
    pub fn knows(&self, key: &ChunkKey) -> bool {
        self.lock().chunks.contains_key(key)
    }

    /// Whether the object store has the chunk, so that an upload need not send it.
    pub fn is_stored(&self, key: &ChunkKey) -> bool {
        self.lock().chunks.get(key).is_some_and(|chunk| chunk.is_stored)
    }

    /// A chunk is about to be stored. Until a manifest has it, it is unreferenced.
    pub fn chunk_begins(&self, key: &ChunkKey) {
        self.lock().chunks.entry(key.clone()).or_default();
    }

    /// The object store has acknowledged a chunk.
    pub fn chunk_stored(&self, key: ChunkKey) {
        self.lock().chunks.entry(key).or_default().is_stored = true;
    }

    /// A chunk is about to be removed, also if the response to that is lost.
    pub fn chunk_removal_begins(&self, key: &ChunkKey) {
        self.lock().chunks.entry(key.clone()).or_default().is_stored = false;
    }

    /// The object store has acknowledged the removal of a chunk.
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

    /// The ids of manifests whose sandboxes other hosts have adopted.
    pub fn handed_over(&self) -> Vec<String> {
        self.lock().handed_over.iter().cloned().collect()
    }

    /// Whether another host has adopted the sandbox of a manifest.
    pub fn is_handed_over(&self, id: &str) -> bool {
        self.lock().handed_over.contains(id)
    }

    /// Another host has adopted the sandbox of a manifest.
    pub fn hand_over(&self, id: &str) -> io::Result<()> {
        File::create(self.path(id, HANDED))?.sync_all()?;
        self.lock().handed_over.insert(id.to_owned());
        sync_dir(&self.dir)
    }

    /// Forgets that the sandbox of a manifest was handed over. Succeeds if it was not.
    pub fn forget_handed_over(&self, id: &str) -> io::Result<()> {
        base::allow_missing(fs::remove_file(self.path(id, HANDED)))?;
        self.lock().handed_over.remove(id);
        sync_dir(&self.dir)
    }

    /// A manifest is about to be stored, whose chunks are.
    pub fn begin(&self, manifest: &Manifest, object: &[u8]) -> io::Result<()> {
        self.forget(&manifest.id)?;
        let path = self.path(&manifest.id, ManifestState::Pending.extension());
        let mut file = File::create(&path)?;
        file.write_all(object)?;
        file.sync_all()?;
        sync_dir(&self.dir)?;
        self.lock().add(manifest, ManifestState::Pending);
        Ok(())
    }

    /// The manifest is stored.
    pub fn complete(&self, manifest: &Manifest) -> io::Result<()> {
        let id = &manifest.id;
        let [pending, complete] = ManifestState::ALL.map(|stored| self.path(id, stored.extension()));
        fs::rename(pending, complete)?;
        sync_dir(&self.dir)?;
        let mut state = self.lock();
        state.name_parts(manifest);
        state.manifests.insert(id.clone(), ManifestState::Complete);
        Ok(())
    }

    /// The object store has a complete manifest in another form.
    pub fn replace(&self, manifest: &Manifest, object: &[u8]) -> io::Result<()> {
        let unfinished = self.path(&manifest.id, "tmp");
        let mut file = File::create(&unfinished)?;
        file.write_all(object)?;
        file.sync_all()?;
        fs::rename(unfinished, self.path(&manifest.id, ManifestState::Complete.extension()))?;
        sync_dir(&self.dir)?;
        self.lock().outdated.remove(&manifest.id);
        Ok(())
    }

    /// The manifest is not stored any more. Succeeds if there is none.
    pub fn forget(&self, id: &str) -> io::Result<()> {
        let Some(stored) = self.lock().manifests.get(id).copied() else { return Ok(()) };
        let manifest = self.read(id, stored)?;
        fs::remove_file(self.path(id, stored.extension()))?;
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
        let complete = state.manifests.iter().filter(|(_, stored)| **stored == ManifestState::Complete);
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
        let manifest = self.read(id, ManifestState::Complete)?;
        let account = &manifest.account;
        let lacks =
            manifest.hashes().any(|hash| !self.is_stored(&ChunkKey { account: account.clone(), hash }));
        Ok(lacks)
    }
}

impl LedgerState {
    fn add(&mut self, manifest: &Manifest, stored: ManifestState) {
        let account = manifest.account.clone();
        for hash in manifest.hashes() {
            let chunk = self.chunks.entry(ChunkKey { account: account.clone(), hash }).or_default();
            chunk.uses += 1;
            chunk.is_stored = true;
        }
        if stored == ManifestState::Complete {
            self.name_parts(manifest);
        }
        self.manifests.insert(manifest.id.clone(), stored);
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
        lists_any |= ManifestState::of_file(&entry?.path()).is_some();
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
    use crate::chunk::CHUNK_BYTES;
    use crate::manifest::{StoredChunk, StoredFile};
    use crate::secret::WithoutCode;

    #[test]
    fn a_location_is_that_of_what_is_listed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(location_of_listed(&dir.path().join("missing")).unwrap(), None);
        fs::write(dir.path().join(LOCATION), "s3://bucket/prefix").unwrap();
        fs::write(dir.path().join("host"), "one").unwrap();
        assert_eq!(location_of_listed(dir.path()).unwrap(), None);
        for stored in ManifestState::ALL {
            let manifest = dir.path().join(format!("snap_aaaaaaaa.{}", stored.extension()));
            fs::write(&manifest, "{}").unwrap();
            assert_eq!(location_of_listed(dir.path()).unwrap().as_deref(), Some("s3://bucket/prefix"));
            let refused = crate::require_nothing_stored(dir.path()).unwrap_err().to_string();
            assert!(refused.starts_with("it was 's3://bucket/prefix' and is not set any more"), "{refused}");
            fs::remove_file(manifest).unwrap();
        }
        assert_eq!(location_of_listed(dir.path()).unwrap(), None);
        crate::require_nothing_stored(dir.path()).unwrap();
    }

    fn secrets(digit: char) -> Secrets {
        Secrets::parse(&digit.to_string().repeat(64), WithoutCode::Refuse).unwrap()
    }

    fn open(dir: &Path) -> Ledger {
        Ledger::open(dir, &secrets('a')).unwrap()
    }

    /// A manifest with a part of its own name, whose chunks have this content.
    fn manifest(id: &str, chunks: &[u8]) -> Manifest {
        let chunk = |(window, content): (usize, &u8)| StoredChunk(window as u64, ChunkHash::of(&[*content]));
        let chunks: Vec<StoredChunk> = chunks.iter().enumerate().map(chunk).collect();
        let bytes = (chunks.len() * CHUNK_BYTES) as u64;
        let files = vec![StoredFile { name: "disk".to_owned(), bytes, chunks }];
        Manifest {
            id: id.to_owned(),
            account: "a".to_owned(),
            host: "host".to_owned(),
            record: serde_json::Value::Null,
            parts: vec![SnapshotPart { name: id.to_owned(), files }],
        }
    }

    fn key(content: u8) -> ChunkKey {
        ChunkKey { account: "a".to_owned(), hash: ChunkHash::of(&[content]) }
    }

    fn begin(ledger: &Ledger, manifest: &Manifest) {
        ledger.begin(manifest, &manifest.to_object(&secrets('a')).unwrap()).unwrap();
    }

    fn store(ledger: &Ledger, manifest: &Manifest) {
        begin(ledger, manifest);
        ledger.complete(manifest).unwrap();
    }

    #[test]
    fn a_manifest_is_shown_when_it_is_complete_also_by_the_next_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ledger, snapshot) = (open(dir.path()), manifest("snap_1", &[1, 2]));
        begin(&ledger, &snapshot);
        for _ in 0..2 {
            assert!(
                !ledger.has("snap_1") && !ledger.has_any() && ledger.manifest("snap_1").unwrap().is_none()
            );
            assert_eq!(
                (ledger.ids(), ledger.part("a", "snap_1").unwrap()),
                (vec!["snap_1".to_owned()], None)
            );
            // It may be in the object store, so its chunks stay there.
            assert!(ledger.is_stored(&key(1)) && ledger.unreferenced().is_empty());
            ledger = open(dir.path());
        }
        ledger.complete(&snapshot).unwrap();
        for _ in 0..2 {
            assert!(ledger.has("snap_1") && ledger.has_any());
            assert_eq!(ledger.manifest("snap_1").unwrap().as_ref(), Some(&snapshot));
            assert_eq!(ledger.part("a", "snap_1").unwrap().as_ref(), Some(&snapshot.parts[0]));
            assert_eq!(ledger.part("b", "snap_1").unwrap(), None);
            ledger = open(dir.path());
        }
    }

    #[test]
    fn chunks_are_unreferenced_when_the_last_manifest_with_them_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = open(dir.path());
        let [first, second] =
            [("snap_1", [1, 2]), ("snap_2", [2, 3])].map(|(id, chunks)| manifest(id, &chunks));
        store(&ledger, &first);
        store(&ledger, &second);
        ledger.forget("snap_1").unwrap();
        assert_eq!(ledger.unreferenced(), [key(1)]);
        assert!(ledger.is_stored(&key(1)), "until it is removed");
        ledger.forget("snap_2").unwrap();
        ledger.forget("snap_2").unwrap();
        assert_eq!((ledger.unreferenced().len(), ledger.ids()), (3, vec![]));
        ledger.chunk_removal_begins(&key(1));
        // Whether it is gone is not known, so it is neither used again nor forgotten.
        assert!(!ledger.is_stored(&key(1)) && ledger.knows(&key(1)));
        ledger.chunk_removed(&key(1));
        assert!(!ledger.knows(&key(1)));
    }

    #[test]
    fn an_upload_that_begins_again_replaces_what_it_had() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = open(dir.path());
        store(&ledger, &manifest("snap_1", &[1]));
        begin(&ledger, &manifest("snap_1", &[2]));
        assert!(!ledger.has("snap_1"));
        assert_eq!(ledger.unreferenced(), [key(1)]);
        let again = open(dir.path());
        assert!(!again.has("snap_1") && again.is_stored(&key(2)) && !again.knows(&key(1)));
    }

    #[test]
    fn a_copy_that_a_crash_has_cut_off_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        store(&open(dir.path()), &manifest("snap_1", &[1]));
        let path = dir.path().join("snap_2.new");
        fs::write(&path, "sandboxd-snapshot 2 ").unwrap();
        let ledger = open(dir.path());
        assert_eq!(ledger.ids(), ["snap_1"]);
        assert!(!path.exists());
    }

    #[test]
    fn what_the_object_store_lacks_is_told_by_what_is_lost_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = open(dir.path());
        for (id, content) in [("snap_1", 1), ("snap_2", 2), ("snap_3", 3)] {
            store(&ledger, &manifest(id, &[content]));
        }
        // Of the second one the manifest is lost, and of the third one a chunk.
        let ids = HashSet::from(["snap_1".to_owned(), "snap_3".to_owned()]);
        let found = HashSet::from([key(1), key(2), key(9)]);
        let lost = ledger.compare(found, &ids).unwrap();
        assert_eq!(
            (lost.without_manifest, lost.incomplete),
            (vec!["snap_2".to_owned()], vec!["snap_3".to_owned()])
        );
        assert!(!ledger.is_stored(&key(3)));
        assert_eq!(ledger.unreferenced(), [key(9)], "left by an upload that was interrupted");
    }

    #[test]
    fn manifests_of_an_earlier_secret_are_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let snapshot = manifest("snap_1", &[1]);
        store(&open(dir.path()), &snapshot);
        let outdated = |ledger: &Ledger| {
            let all = HashSet::from(["snap_1".to_owned()]);
            ledger.compare(HashSet::from([key(1)]), &all).unwrap().without_manifest
        };
        assert!(outdated(&open(dir.path())).is_empty());
        let ledger = Ledger::open(dir.path(), &secrets('b')).unwrap();
        assert_eq!(outdated(&ledger), ["snap_1"]);
        ledger.replace(&snapshot, &snapshot.to_object(&secrets('b')).unwrap()).unwrap();
        assert!(outdated(&ledger).is_empty());
        assert!(outdated(&Ledger::open(dir.path(), &secrets('b')).unwrap()).is_empty());
    }

    #[test]
    fn another_location_is_told_while_something_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = open(dir.path());
        // Nothing is stored, so the location may change.
        for location in ["file:/one", "file:/one", "file:/two"] {
            assert_eq!(ledger.check_location(location).unwrap(), None, "{location}");
        }
        begin(&ledger, &manifest("snap_1", &[1]));
        assert_eq!(ledger.check_location("file:/two").unwrap(), None);
        assert_eq!(ledger.check_location("file:/one").unwrap().as_deref(), Some("file:/two"));
    }

    #[test]
    fn the_name_of_a_host_stays() {
        let dir = tempfile::tempdir().unwrap();
        let name = open(dir.path()).host;
        assert!(!name.is_empty() && open(dir.path()).host == name);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path()).host, name);
    }
}
