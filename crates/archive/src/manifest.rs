//! Manifests: what belongs to a snapshot, and which chunks its files are.
//!
//! The object is a line with the format, its version and the hash of the rest, and JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chunk::ChunkHash;

const FORMAT: &str = "sandboxd-snapshot 1";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub id: String,
    pub account: String,
    /// The host that has stored it, and its chunks.
    pub host: String,
    /// What the caller knows of the snapshot.
    pub record: Value,
    /// Its own files, and those of what it builds on.
    pub parts: Vec<Part>,
}

/// Files that belong together and never change. Several snapshots can have the same part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    pub name: String,
    pub files: Vec<StoredFile>,
}

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

impl Manifest {
    pub fn to_object(&self) -> Result<Vec<u8>, serde_json::Error> {
        let body = serde_json::to_vec(self)?;
        let mut object = format!("{FORMAT} {}\n", ChunkHash::of(&body)).into_bytes();
        object.extend(body);
        Ok(object)
    }

    /// Reads an object, which may be anything.
    pub fn from_object(object: &[u8]) -> Result<Self, String> {
        let end = object.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let (line, rest) = object.split_at(end);
        let line = str::from_utf8(line).unwrap_or_default();
        let Some(hash) = line.strip_prefix(FORMAT).and_then(|hash| hash.trim_start().parse().ok()) else {
            return Err(format!("it does not begin with '{FORMAT}' and a hash"));
        };
        let body = rest.get(1..).unwrap_or_default();
        if ChunkHash::of(body) != hash {
            return Err("its content has another hash".to_owned());
        }
        serde_json::from_slice(body).map_err(|error| error.to_string())
    }

    pub fn hashes(&self) -> impl Iterator<Item = ChunkHash> {
        let files = self.parts.iter().flat_map(|part| part.files.iter());
        files.flat_map(|file| file.chunks.iter().map(|StoredChunk(_, hash)| *hash))
    }

    pub fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_change_of_the_object_is_noticed() {
        let chunks = vec![StoredChunk(3, ChunkHash::of(b"content"))];
        let files = vec![StoredFile { name: "disk".to_owned(), bytes: 5 << 20, chunks }];
        let manifest = Manifest {
            id: "snap_1".to_owned(),
            account: "a".to_owned(),
            host: "h".to_owned(),
            record: json!({"image": "ubuntu"}),
            parts: vec![Part { name: "snap_1".to_owned(), files }],
        };
        let object = manifest.to_object().unwrap();
        assert_eq!(Manifest::from_object(&object), Ok(manifest));
        for at in 0..object.len() {
            let mut damaged = object.clone();
            damaged[at] ^= 1;
            assert!(Manifest::from_object(&damaged).is_err(), "byte {at}");
            assert!(Manifest::from_object(&object[..at]).is_err(), "{at} bytes");
        }
    }
}
