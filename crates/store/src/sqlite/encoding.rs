//! The stored encoding of idempotency records: large ones are compressed. A response with escaped output is up to six
//! times as large as the output; compression reverses that.

use std::io::{Read, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::error::{SqliteError, SqliteResult};
use crate::{Batch, MAX_RESPONSE, StoreError, Write};

/// Smaller contents are stored uncompressed.
const COMPRESSED_FROM: usize = 8 << 10;
/// Larger contents are compressed on a thread that may block.
const BLOCKING_FROM: usize = 64 << 10;

const UNCOMPRESSED: i64 = 0;
const DEFLATE: i64 = 1;

/// A batch with encoded idempotency records.
pub(super) struct Encoded {
    pub(super) batch: Batch,
    /// Whether its idempotency records are compressed; applies to all of them.
    pub(super) is_compressed: bool,
}

impl Encoded {
    pub(super) fn encoding(&self) -> i64 {
        if self.is_compressed { DEFLATE } else { UNCOMPRESSED }
    }
}

/// The size of the largest idempotency record.
fn largest_record(batch: &Batch) -> usize {
    let size = |write: &Write| match write {
        Write::PutIdempotencyRecord(record) => record.content.len(),
        _ => 0,
    };
    batch.writes().iter().map(size).max().unwrap_or(0)
}

/// Encodes a batch, beside the async workers if it is large.
pub(super) async fn encode_beside(batch: Batch) -> Result<Encoded, StoreError> {
    if largest_record(&batch) < BLOCKING_FROM {
        return Ok(encode(batch));
    }
    let encoding = tokio::task::spawn_blocking(|| encode(batch));
    encoding.await.map_err(|error| StoreError::failed("cannot compress a response", error))
}

pub(super) fn encode(batch: Batch) -> Encoded {
    if largest_record(&batch) < COMPRESSED_FROM {
        return Encoded { batch, is_compressed: false };
    }
    let mut encoded = Batch::new();
    for write in batch.into_writes() {
        encoded = encoded.with(match write {
            Write::PutIdempotencyRecord(mut record) => {
                record.content = compress(&record.content);
                Write::PutIdempotencyRecord(record)
            }
            write => write,
        });
    }
    Encoded { batch: encoded, is_compressed: true }
}

fn compress(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let written = encoder.write_all(content);
    debug_assert!(written.is_ok());
    encoder.finish().unwrap_or_default()
}

pub(super) fn decode(content: Vec<u8>, encoding: i64) -> SqliteResult<Vec<u8>> {
    match encoding {
        UNCOMPRESSED => Ok(content),
        DEFLATE => {
            let mut decompressed = Vec::new();
            let limit = MAX_RESPONSE as u64 + 1;
            let read = DeflateDecoder::new(content.as_slice()).take(limit).read_to_end(&mut decompressed);
            read.map_err(|error| SqliteError::content("a stored response", error))?;
            Ok(decompressed)
        }
        other => Err(SqliteError::content("encoding of a stored response", format!("{other} is unknown"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_round_trips_and_escaped_output_is_compressed() {
        for content in [Vec::new(), b"{}".to_vec(), b"\\u0001".repeat(1 << 20), (0..=255).collect()] {
            let compressed = compress(&content);
            assert!(compressed.len() < content.len() / 100 + 300);
            assert_eq!(decode(compressed, DEFLATE).unwrap(), content);
            assert_eq!(decode(content.clone(), UNCOMPRESSED).unwrap(), content);
        }
    }

    #[test]
    fn damaged_content_is_an_error() {
        assert!(decode(vec![0xff; 100], DEFLATE).is_err());
        assert!(decode(Vec::new(), 7).is_err());
    }
}
