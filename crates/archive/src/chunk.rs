//! Chunks: pieces of files, compressed, and named by the hash of their content.

use std::fmt;
use std::io;
use std::str::FromStr;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The size of a chunk; the last one of a file may be smaller. Small enough that a few changed blocks cost little, and large enough that
/// a request is worth it.
pub const CHUNK_BYTES: usize = 1 << 20;

/// Disk images compress well at any level; higher ones cost several times the processor time.
const LEVEL: i32 = 1;

/// The SHA-256 of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ChunkHash([u8; SHA256_OUTPUT_LEN]);

impl ChunkHash {
    /// The hash by which a chunk of this content is stored and found.
    pub fn of(content: &[u8]) -> Self {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        hash.copy_from_slice(digest(&SHA256, content).as_ref());
        Self(hash)
    }
}

impl fmt::Display for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A text that is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the SHA-256 of a chunk")]
pub struct BadHash;

impl FromStr for ChunkHash {
    type Err = BadHash;

    fn from_str(text: &str) -> Result<Self, BadHash> {
        let mut hash = [0; SHA256_OUTPUT_LEN];
        if text.len() != 2 * hash.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(BadHash);
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digits = str::from_utf8(digits).map_err(|_| BadHash)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| BadHash)?;
        }
        Ok(Self(hash))
    }
}

impl Serialize for ChunkHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChunkHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The object of a chunk. Its inverse is [`decompress`].
pub fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(content, LEVEL)
}

/// The content of a chunk. Never more than [`CHUNK_BYTES`], whatever the object is.
pub fn decompress(object: &[u8], hash: ChunkHash) -> Result<Vec<u8>, String> {
    let content = zstd::bulk::decompress(object, CHUNK_BYTES).map_err(|error| error.to_string())?;
    if ChunkHash::of(&content) == hash { Ok(content) } else { Err("its content has another hash".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_has_the_content_that_its_name_says() {
        let content = vec![7; CHUNK_BYTES];
        let hash = ChunkHash::of(&content);
        let object = compress(&content).unwrap();
        assert_eq!(decompress(&object, hash), Ok(content));
        assert!(decompress(&object, ChunkHash::of(b"other")).is_err());
        for at in [0, object.len() / 2, object.len() - 1] {
            let mut damaged = object.clone();
            damaged[at] ^= 1;
            assert!(decompress(&damaged, hash).is_err(), "byte {at}");
        }
        assert!(decompress(&object[..object.len() - 1], hash).is_err());
    }

    #[test]
    fn an_object_cannot_become_larger_than_a_chunk() {
        let content = vec![0; CHUNK_BYTES + 1];
        let object = compress(&content).unwrap();
        assert!(decompress(&object, ChunkHash::of(&content)).is_err());
    }

    #[test]
    fn a_hash_is_64_digits() {
        let hash = ChunkHash::of(b"content");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for text in ["", "00", &"g".repeat(64), &"é".repeat(32), &"0".repeat(65)] {
            assert_eq!(text.parse::<ChunkHash>(), Err(BadHash), "{text}");
        }
    }
}
