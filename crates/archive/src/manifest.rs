//! Manifests: what belongs to a snapshot, and which chunks its files are.
//!
//! The object is a line and JSON. The line has the format, its version, the hash of the JSON, and the authentication code, which covers
//! the id under which the object is stored and the hash. The JSON has the account, so nobody without the secret can pass the manifest of
//! one account off as that of another. The chunks are named by their hashes, so the code covers all content of the snapshot, too.
//!
//! ```text
//! sandboxd-snapshot 2 SHA256 SECRET-ID HMAC
//! {"id": …}
//! ```
//!
//! Earlier releases wrote version 1, without a code. [`crate::secret`] decides whether it is accepted.

mod bounded_value;
mod envelope;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::envelope::Envelope;
use crate::chunk::{CHUNK_BYTES, ChunkHash};
use crate::secret::{Code, Secrets, Unauthentic};

/// Bounds of a manifest. The disks of a sandbox are at most nine, and its executions have some files each.
const PARTS: usize = 64;
const FILES: usize = 16_384;
const NAME_BYTES: usize = 512;
/// 16 TiB.
const FILE_BYTES: u64 = 1 << 44;

/// What a stored snapshot consists of. It is stored last: a snapshot without a manifest does not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub id: String,
    pub account: String,
    /// The host that has stored it, and its chunks.
    pub host: String,
    /// What the caller knows of the snapshot.
    #[serde(deserialize_with = "bounded_value::deserialize")]
    pub record: Value,
    /// Its own files, and those of what it builds on.
    pub parts: Vec<SnapshotPart>,
}

/// Files that belong together and never change. Several snapshots can have the same part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotPart {
    pub name: String,
    pub files: Vec<StoredFile>,
}

/// A file, as the chunks of its windows that have content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    pub name: String,
    pub bytes: u64,
    /// The rest of the file is zeros.
    pub chunks: Vec<StoredChunk>,
}

/// The number of a window of the file, and its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredChunk(pub u64, pub ChunkHash);

/// Why an object is no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadObject {
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Unauthentic(#[from] Unauthentic),
}

/// What the code of a manifest covers.
fn covered<'a>(id: &'a str, hash: &'a str) -> [&'a str; 3] {
    ["sandboxd-snapshot", id, hash]
}

impl Manifest {
    /// The object to store, with a code by the present secret.
    pub fn to_object(&self, secrets: &Secrets) -> Result<Vec<u8>, serde_json::Error> {
        let body = serde_json::to_vec(self)?;
        let hash = ChunkHash::of(&body);
        let code = secrets.code(&covered(&self.id, &hash.to_string()));
        Ok(Envelope { hash, code: Some(code), body: &body }.to_object())
    }

    /// Reads the object that is stored as `id`, which anybody may have written. Nothing is parsed before it is authenticated.
    pub fn from_object(id: &str, object: &[u8], secrets: &Secrets) -> Result<Self, BadObject> {
        let envelope = Envelope::parse(object).map_err(BadObject::Damaged)?;
        secrets.verify(&covered(id, &envelope.hash.to_string()), envelope.code)?;
        let manifest = Self::parse(envelope.body).map_err(BadObject::Damaged)?;
        if manifest.id != id {
            return Err(BadObject::Damaged("it is the manifest of another snapshot".to_owned()));
        }
        Ok(manifest)
    }

    /// Reads a copy on the local disk, which only this host writes, and the code that it has.
    pub fn from_copy(object: &[u8]) -> Result<(Self, Option<Code>), String> {
        let envelope = Envelope::parse(object)?;
        Ok((Self::parse(envelope.body)?, envelope.code))
    }

    fn parse(body: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Compares a manifest with the bounds.
    pub fn check(&self) -> Result<(), String> {
        let files = self.parts.iter().map(|part| part.files.len()).sum::<usize>();
        if self.parts.len() > PARTS || files > FILES {
            let parts = self.parts.len();
            return Err(format!("it has {parts} parts with {files} files; allowed are {PARTS} with {FILES}"));
        }
        let names = self
            .parts
            .iter()
            .flat_map(|part| std::iter::once(&part.name).chain(part.files.iter().map(|file| &file.name)));
        if names.chain([&self.id, &self.account, &self.host]).any(|name| name.len() > NAME_BYTES) {
            return Err(format!("it has a name with more than {NAME_BYTES} bytes"));
        }
        self.parts.iter().flat_map(|part| &part.files).try_for_each(StoredFile::check)
    }

    /// The chunks of all files; a chunk that occurs twice is there twice.
    pub fn hashes(&self) -> impl Iterator<Item = ChunkHash> {
        let files = self.parts.iter().flat_map(|part| part.files.iter());
        files.flat_map(|file| file.chunks.iter().map(|StoredChunk(_, hash)| *hash))
    }

    /// The part of this name, which another snapshot may have too.
    pub fn part(&self, name: &str) -> Option<&SnapshotPart> {
        self.parts.iter().find(|part| part.name == name)
    }
}

impl StoredFile {
    fn check(&self) -> Result<(), String> {
        if self.bytes > FILE_BYTES {
            let (name, bytes) = (&self.name, self.bytes);
            return Err(format!("its file '{name}' has {bytes} bytes; at most {FILE_BYTES} are allowed"));
        }
        let windows = self.bytes.div_ceil(CHUNK_BYTES as u64);
        let is_increasing =
            self.chunks.is_sorted_by(|StoredChunk(first, _), StoredChunk(second, _)| first < second);
        if !is_increasing || self.chunks.last().is_some_and(|StoredChunk(last, _)| *last >= windows) {
            return Err(format!("the chunks of its file '{}' overlap or are outside of it", self.name));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::secret::WithoutCode;

    fn secrets(digit: char, without_code: WithoutCode) -> Secrets {
        Secrets::parse(&digit.to_string().repeat(64), without_code).unwrap()
    }

    fn manifest() -> Manifest {
        let chunks = vec![StoredChunk(3, ChunkHash::of(b"content"))];
        let files = vec![StoredFile { name: "disk".to_owned(), bytes: 5 << 20, chunks }];
        Manifest {
            id: "snap_1".to_owned(),
            account: "a".to_owned(),
            host: "h".to_owned(),
            record: json!({"image": "ubuntu"}),
            parts: vec![SnapshotPart { name: "snap_1".to_owned(), files }],
        }
    }

    /// As earlier releases wrote it.
    fn without_code(manifest: &Manifest) -> Vec<u8> {
        let body = serde_json::to_vec(manifest).unwrap();
        let mut object = format!("sandboxd-snapshot 1 {}\n", ChunkHash::of(&body)).into_bytes();
        object.extend(body);
        object
    }

    #[test]
    fn every_change_of_the_object_is_noticed() {
        let (manifest, secrets) = (manifest(), secrets('a', WithoutCode::Accept));
        let object = manifest.to_object(&secrets).unwrap();
        assert_eq!(Manifest::from_object("snap_1", &object, &secrets), Ok(manifest));
        for at in 0..object.len() {
            let mut damaged = object.clone();
            damaged[at] ^= 1;
            assert!(Manifest::from_object("snap_1", &damaged, &secrets).is_err(), "byte {at}");
            assert!(Manifest::from_object("snap_1", &object[..at], &secrets).is_err(), "{at} bytes");
        }
    }

    #[test]
    fn only_a_host_with_the_secret_can_make_one() {
        let own = secrets('a', WithoutCode::Refuse);
        let refused = |id: &str, object: &[u8]| match Manifest::from_object(id, object, &own) {
            Err(BadObject::Unauthentic(reason)) => reason,
            other => panic!("{other:?}"),
        };
        let object = manifest().to_object(&own).unwrap();
        // Stored as another one.
        assert_eq!(refused("snap_2", &object), Unauthentic::WrongCode);
        // Another account, with the code of the original.
        let line_end = object.iter().position(|byte| *byte == b'\n').unwrap();
        let line = str::from_utf8(&object[..line_end]).unwrap();
        let body = serde_json::to_vec(&Manifest { account: "b".to_owned(), ..manifest() }).unwrap();
        let old_hash = line.split(' ').nth(2).unwrap();
        let forged =
            [line.replace(old_hash, &ChunkHash::of(&body).to_string()).as_bytes(), b"\n", &body].concat();
        assert_eq!(refused("snap_1", &forged), Unauthentic::WrongCode);
        // Another secret, and none.
        let others = manifest().to_object(&secrets('b', WithoutCode::Refuse)).unwrap();
        assert!(matches!(refused("snap_1", &others), Unauthentic::OtherSecret { .. }));
        assert_eq!(refused("snap_1", &without_code(&manifest())), Unauthentic::NoCode);
        let lenient = secrets('a', WithoutCode::Accept);
        assert_eq!(Manifest::from_object("snap_1", &without_code(&manifest()), &lenient), Ok(manifest()));
    }

    #[test]
    fn an_impossible_manifest_is_refused() {
        let secrets = secrets('a', WithoutCode::Refuse);
        let hash = ChunkHash::of(b"content");
        let with = |change: &dyn Fn(&mut Manifest)| {
            let mut manifest = manifest();
            change(&mut manifest);
            let object = manifest.to_object(&secrets).unwrap();
            Manifest::from_object("snap_1", &object, &secrets).unwrap_err().to_string()
        };
        for (reason, change) in [
            ("outside", &(|m: &mut Manifest| m.parts[0].files[0].chunks[0].0 = 5) as &dyn Fn(&mut Manifest)),
            ("overlap", &move |m| m.parts[0].files[0].chunks.push(StoredChunk(3, hash))),
            ("at most", &|m| m.parts[0].files[0].bytes = u64::MAX),
            ("512 bytes", &|m| m.parts[0].files[0].name = "x".repeat(513)),
            ("65 parts", &|m| m.parts = vec![SnapshotPart { name: String::new(), files: Vec::new() }; 65]),
            ("values", &|m| m.record = json!(vec![0; 20_000])),
        ] {
            let error = with(change);
            assert!(error.contains(reason), "{error}");
        }
    }
}
