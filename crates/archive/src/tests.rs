//! Copies in an object store in memory, which fails, forgets and damages on request.

use std::fmt;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result as StoreResult,
};
use serde_json::json;
use tempfile::TempDir;

use super::*;

const CHUNK: u64 = CHUNK_BYTES as u64;

/// An object store that refuses further writes after some.
#[derive(Debug, Default)]
struct Failing {
    objects: InMemory,
    puts: AtomicUsize,
    limit: AtomicUsize,
    /// Deletions are carried out, and their responses are lost.
    loses_deletions: AtomicBool,
}

impl Failing {
    fn new() -> Arc<Self> {
        Arc::new(Self { limit: AtomicUsize::new(usize::MAX), ..Self::default() })
    }

    /// Fails after this many writes.
    fn fail_after(&self, puts: usize) {
        self.limit.store(self.puts.load(Ordering::SeqCst).saturating_add(puts), Ordering::SeqCst);
    }

    fn puts(&self) -> usize {
        self.puts.load(Ordering::SeqCst)
    }

    async fn paths(&self) -> Vec<Path> {
        self.objects.list(None).map_ok(|object| object.location).try_collect().await.unwrap()
    }
}

impl fmt::Display for Failing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failing")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Failing {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> StoreResult<PutResult> {
        if self.puts.fetch_add(1, Ordering::SeqCst) >= self.limit.load(Ordering::SeqCst) {
            return Err(object_store::Error::Generic { store: "failing", source: "no more".into() });
        }
        self.objects.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> StoreResult<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> StoreResult<GetResult> {
        self.objects.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> StoreResult<Vec<bytes::Bytes>> {
        self.objects.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, StoreResult<Path>>,
    ) -> BoxStream<'static, StoreResult<Path>> {
        let deleted = self.objects.delete_stream(locations);
        if !self.loses_deletions.load(Ordering::SeqCst) {
            return deleted;
        }
        let lost = |_| Err(object_store::Error::Generic { store: "failing", source: "lost".into() });
        deleted.map(lost).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, StoreResult<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> StoreResult<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> StoreResult<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

struct Fixture {
    dir: TempDir,
    objects: Arc<Failing>,
    archive: Archive,
}

impl Fixture {
    fn new() -> Self {
        let (dir, objects) = (tempfile::tempdir().unwrap(), Failing::new());
        let archive = open(&dir, &objects, "ledger");
        Self { dir, objects, archive }
    }

    /// What the next start of the host sees.
    fn restart(&mut self) {
        self.archive = open(&self.dir, &self.objects, "ledger");
    }

    /// A sparse file with a random megabyte at each of these places.
    fn disk(&self, name: &str, megabytes: u64, content: &[(u64, u8)]) -> PathBuf {
        let path = self.dir.path().join(name);
        let file = File::create(&path).unwrap();
        file.set_len(megabytes * CHUNK).unwrap();
        for (at, seed) in content {
            let bytes: Vec<u8> =
                (0..CHUNK).map(|index| (index.wrapping_mul(u64::from(*seed)) >> 3) as u8).collect();
            file.write_all_at(&bytes, at * CHUNK).unwrap();
        }
        path
    }

    fn source(&self, id: &str, account: &str, parts: &[(&str, PathBuf)]) -> SourceSnapshot {
        let part = |(name, path): &(&str, PathBuf)| SourcePart {
            name: (*name).to_owned(),
            files: vec![SourceFile { name: "disk".to_owned(), path: path.clone() }],
        };
        SourceSnapshot {
            id: id.to_owned(),
            account: account.to_owned(),
            record: json!({"of": id}),
            parts: parts.iter().map(part).collect(),
        }
    }

    async fn upload(&self, source: &SourceSnapshot) {
        self.archive.upload(source, &|| true).await.unwrap().complete().unwrap();
    }

    /// Reads the only file of a part, on this host or another one.
    async fn read(&self, archive: &Archive, id: &str, part: usize) -> Result<Vec<u8>, ArchiveError> {
        let manifest = archive.manifest(id).await?.unwrap();
        let to = self.dir.path().join("read");
        archive.download(&manifest, &manifest.parts[part].files[0], &to).await?;
        Ok(fs::read(to).unwrap())
    }
}

fn secrets(digit: char, without_code: WithoutCode) -> Secrets {
    Secrets::parse(&digit.to_string().repeat(64), without_code).unwrap()
}

fn open(dir: &TempDir, objects: &Arc<Failing>, name: &str) -> Archive {
    open_with(dir, objects, name, secrets('a', WithoutCode::Refuse))
}

fn open_with(dir: &TempDir, objects: &Arc<Failing>, name: &str, secrets: Secrets) -> Archive {
    let objects = Arc::clone(objects) as Arc<dyn ObjectStore>;
    Archive::with_objects(objects, Path::from("a/prefix"), &dir.path().join(name), secrets).unwrap()
}

#[tokio::test]
async fn another_host_reads_what_this_one_has_stored() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 20, &[(0, 3), (7, 5), (19, 3)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk.clone())])).await;
    let other = open(&fixture.dir, &fixture.objects, "other");
    let manifest = other.manifest("snap_1").await.unwrap().unwrap();
    assert_eq!((manifest.account.as_str(), &manifest.record), ("a", &json!({"of": "snap_1"})));
    assert!(fixture.read(&other, "snap_1", 0).await.unwrap() == fs::read(disk).unwrap());
    assert!(!other.has("snap_1") && other.manifest("snap_2").await.unwrap().is_none());
    // It has stored nothing, so its reconciliation removes nothing.
    assert_eq!(other.reconcile().await.unwrap().others, ["snap_1"]);
    assert_eq!(other.remove_unreferenced().await.unwrap(), 0);
    assert!(fixture.read(&fixture.archive, "snap_1", 0).await.is_ok());
}

#[tokio::test]
async fn a_snapshot_is_shown_as_stored_when_its_upload_is_completed() {
    let mut fixture = Fixture::new();
    let disk = fixture.disk("disk", 1, &[(0, 3)]);
    let source = fixture.source("snap_1", "a", &[("snap_1", disk)]);
    let sent = fixture.archive.upload(&source, &|| true).await.unwrap();
    assert!(sent.bytes > 0 && !fixture.archive.has("snap_1"));
    // A process that ends here stores its manifest again.
    drop(sent);
    fixture.restart();
    assert!(!fixture.archive.has("snap_1"));
    let again = fixture.archive.upload(&source, &|| true).await.unwrap();
    assert_eq!(again.bytes, 0);
    again.complete().unwrap();
    assert!(fixture.archive.has("snap_1"));
}

#[tokio::test]
async fn what_is_stored_is_not_sent_again_and_stays_until_nothing_needs_it() {
    let mut fixture = Fixture::new();
    let first = fixture.disk("first", 8, &[(0, 3), (1, 5), (2, 7)]);
    let second = fixture.disk("second", 8, &[(0, 3), (1, 5), (2, 9)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", first.clone())])).await;
    assert_eq!(fixture.objects.puts(), 4);
    // A changed chunk, and the manifest. The part that is stored is not even read.
    fs::remove_file(first).unwrap();
    let parts = [("snap_2", second.clone()), ("snap_1", PathBuf::from("/missing"))];
    fixture.upload(&fixture.source("snap_2", "a", &parts)).await;
    assert_eq!(fixture.objects.puts(), 6);
    assert!(fixture.archive.has_part("a", "snap_1").unwrap());
    assert!(!fixture.archive.has_part("b", "snap_1").unwrap());
    fixture.archive.remove("snap_1").await.unwrap();
    assert!(fixture.archive.has_part("a", "snap_1").unwrap());
    assert_eq!(fixture.archive.remove_unreferenced().await.unwrap(), 0);
    fixture.restart();
    assert_eq!(fixture.archive.ids(), ["snap_2"]);
    assert!(fixture.read(&fixture.archive, "snap_2", 0).await.unwrap() == fs::read(&second).unwrap());
    assert!(fixture.read(&fixture.archive, "snap_2", 1).await.is_ok());
    fixture.archive.remove("snap_2").await.unwrap();
    assert_eq!(fixture.archive.remove_unreferenced().await.unwrap(), 4);
    assert_eq!(fixture.objects.paths().await, []);
    // A removal that is repeated.
    fixture.archive.remove("snap_2").await.unwrap();
}

#[tokio::test]
async fn accounts_share_nothing_whatever_their_names_are() {
    let mut fixture = Fixture::new();
    let disk = fixture.disk("disk", 1, &[(0, 3)]);
    for (id, account) in [("snap_1", "a"), ("snap_2", "../b/%2f c"), ("snap_3", "..")] {
        fixture.upload(&fixture.source(id, account, &[("part", disk.clone())])).await;
    }
    assert_eq!(fixture.objects.puts(), 6);
    fixture.restart();
    assert_eq!(fixture.archive.reconcile().await.unwrap(), Reconciled::default());
    assert_eq!(fixture.archive.remove_unreferenced().await.unwrap(), 0);
    assert!(fixture.read(&fixture.archive, "snap_2", 0).await.is_ok());
    for path in fixture.objects.paths().await {
        assert!(path.as_ref().starts_with("a/prefix/"), "{path}");
    }
}

#[tokio::test]
async fn an_interrupted_upload_continues_or_leaves_nothing() {
    let content: Vec<(u64, u8)> = (0..12).map(|at| (at, 2 * at as u8 + 3)).collect();
    for puts in 0..=12 {
        let mut fixture = Fixture::new();
        let disk = fixture.disk("disk", 12, &content);
        let source = fixture.source("snap_1", "a", &[("snap_1", disk)]);
        fixture.objects.fail_after(puts);
        let failed = fixture.archive.upload(&source, &|| true).await.err().unwrap();
        assert!(failed.is_transient() && !fixture.archive.has("snap_1"), "{failed}");
        let sent = fixture.objects.paths().await.len();
        fixture.restart();
        assert_eq!(fixture.archive.reconcile().await.unwrap(), Reconciled::default());
        fixture.objects.fail_after(usize::MAX);
        if puts % 2 == 0 {
            let before = fixture.objects.puts();
            fixture.upload(&source).await;
            assert_eq!(fixture.objects.puts() - before, 13 - sent);
            assert!(fixture.archive.has("snap_1"));
            continue;
        }
        for id in fixture.archive.ids() {
            fixture.archive.remove(&id).await.unwrap();
        }
        fixture.archive.remove_unreferenced().await.unwrap();
        assert_eq!(fixture.objects.paths().await, []);
    }
}

#[tokio::test]
async fn what_the_object_store_has_lost_is_noticed() {
    let mut fixture = Fixture::new();
    let disk = fixture.disk("disk", 3, &[(0, 3), (2, 5)]);
    let second = fixture.disk("second", 3, &[(0, 7)]);
    let source = fixture.source("snap_1", "a", &[("snap_1", disk.clone())]);
    for lost in ["hosts", "snapshots"] {
        fixture.upload(&source).await;
        fixture.upload(&fixture.source("snap_2", "a", &[("snap_2", second.clone())])).await;
        let mut paths = fixture.objects.paths().await;
        paths.retain(|path| {
            path.as_ref().contains(lost) && (lost == "hosts" || path.as_ref().ends_with("snap_1"))
        });
        let manifest = fixture.archive.manifest("snap_1").await.unwrap().unwrap();
        let hash = manifest.hashes().next().unwrap().to_string();
        paths.retain(|path| lost == "snapshots" || path.as_ref().ends_with(&hash));
        fixture.objects.objects.delete(&paths[0]).await.unwrap();
        if lost == "hosts" {
            let failed = fixture.read(&fixture.archive, "snap_1", 0).await.unwrap_err();
            assert!(matches!(failed, ArchiveError::Missing { object } if object.ends_with(&hash)));
        }
        fixture.restart();
        let found = fixture.archive.reconcile().await.unwrap().lost;
        // A manifest is in the ledger, too. Chunks have to be uploaded again.
        assert_eq!(found, if lost == "hosts" { vec!["snap_1"] } else { Vec::new() });
        assert_eq!(fixture.archive.ids(), ["snap_1", "snap_2"]);
        if lost == "hosts" {
            fixture.archive.forget("snap_1").await.unwrap();
            assert_eq!(fixture.archive.ids(), ["snap_2"]);
            fixture.upload(&source).await;
        }
        let other = open(&fixture.dir, &fixture.objects, "other");
        assert!(fixture.read(&other, "snap_1", 0).await.unwrap() == fs::read(&disk).unwrap());
        assert!(fixture.read(&fixture.archive, "snap_1", 0).await.unwrap() == fs::read(&disk).unwrap());
    }
}

#[tokio::test]
async fn damaged_objects_are_named_and_never_used() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3), (1, 5)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let other = open(&fixture.dir, &fixture.objects, "other");
    for path in fixture.objects.paths().await {
        let object = fixture.objects.objects.get(&path).await.unwrap().bytes().await.unwrap();
        let mut damaged = object.to_vec();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x10;
        fixture.objects.objects.put(&path, damaged.into()).await.unwrap();
        let failed = match other.manifest("snap_1").await {
            Ok(_) => fixture.read(&other, "snap_1", 0).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(
            matches!(&failed, ArchiveError::Damaged { object, .. } if *object == path.to_string()),
            "{failed}"
        );
        fixture.objects.objects.put(&path, object.into()).await.unwrap();
    }
    assert!(fixture.read(&other, "snap_1", 0).await.is_ok());
}

#[tokio::test]
async fn a_manifest_cannot_write_outside_of_its_file() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let mut manifest = fixture.archive.manifest("snap_1").await.unwrap().unwrap();
    for window in [2, u64::MAX, u64::MAX / CHUNK] {
        manifest.parts[0].files[0].chunks[0].0 = window;
        let to = fixture.dir.path().join("to");
        let failed = fixture.archive.download(&manifest, &manifest.parts[0].files[0], &to).await.unwrap_err();
        assert!(matches!(failed, ArchiveError::Damaged { .. }), "{failed}");
        assert_eq!(fs::metadata(&to).unwrap().len(), 2 * CHUNK);
    }
}

#[tokio::test]
async fn an_upload_that_is_not_wanted_ends() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 9, &[(0, 3), (1, 5), (2, 7), (3, 9)]);
    let asked = AtomicUsize::new(0);
    let is_wanted = || asked.fetch_add(1, Ordering::SeqCst) < 2;
    let source = fixture.source("snap_1", "a", &[("snap_1", disk)]);
    let failed = fixture.archive.upload(&source, &is_wanted).await.err().unwrap();
    assert!(matches!(failed, ArchiveError::Unwanted));
    fixture.archive.remove_unreferenced().await.unwrap();
    assert_eq!(fixture.objects.paths().await, []);
}

#[tokio::test]
async fn chunks_whose_deletion_is_uncertain_are_sent_again() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 2, &[(0, 3), (1, 5)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk.clone())])).await;
    fixture.archive.remove("snap_1").await.unwrap();
    fixture.objects.loses_deletions.store(true, Ordering::SeqCst);
    assert!(fixture.archive.remove_unreferenced().await.unwrap_err().is_transient());
    fixture.objects.loses_deletions.store(false, Ordering::SeqCst);
    fixture.upload(&fixture.source("snap_2", "a", &[("snap_2", disk.clone())])).await;
    let other = open(&fixture.dir, &fixture.objects, "other");
    assert!(fixture.read(&other, "snap_2", 0).await.unwrap() == fs::read(&disk).unwrap());
}

#[tokio::test]
async fn an_empty_store_is_no_loss_of_everything() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 1, &[(0, 3)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let empty = Failing::new() as Arc<dyn ObjectStore>;
    let dir = fixture.dir.path().join("ledger");
    let archive =
        Archive::with_objects(empty, Path::from("a/prefix"), &dir, secrets('a', WithoutCode::Refuse))
            .unwrap();
    assert!(matches!(archive.reconcile().await, Err(ArchiveError::Empty)));
    assert!(archive.has("snap_1"));
}

#[tokio::test]
async fn objects_of_another_size_are_not_read() {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 1, &[(0, 3)]);
    fixture.upload(&fixture.source("snap_1", "a", &[("snap_1", disk)])).await;
    let manifest = fixture.archive.manifest("snap_1").await.unwrap().unwrap();
    let hash = manifest.hashes().next().unwrap();
    let path = fixture.archive.chunk_path(&manifest.host, "a", hash);
    fixture.objects.objects.put(&path, vec![0; 2 << 20].into()).await.unwrap();
    let failed = fixture.read(&fixture.archive, "snap_1", 0).await.unwrap_err();
    assert!(
        matches!(&failed, ArchiveError::Damaged { reason, .. } if reason.contains("2097152")),
        "{failed}"
    );
}

#[test]
fn another_location_is_refused_while_something_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| Location::Directory(dir.path().join(name));
    let open = |name: &str| {
        let secrets = secrets('a', WithoutCode::Refuse);
        Archive::open(&at(name), &S3Options::default(), &dir.path().join("ledger"), secrets)
    };
    // Nothing is stored yet.
    for name in ["one", "two", "one"] {
        open(name).unwrap();
    }
    let source = SourceSnapshot {
        id: "snap_1".to_owned(),
        account: "a".to_owned(),
        record: json!({}),
        parts: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let one = open("one").unwrap();
    runtime.block_on(one.upload(&source, &|| true)).unwrap().complete().unwrap();
    drop(one);
    assert!(matches!(open("two"), Err(ArchiveError::Configuration(_))));
    open("one").unwrap();
}

mod adoptions;
mod bombs;
mod hostile_writer;
