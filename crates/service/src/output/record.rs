//! A large output as an idempotency record. As JSON a text could take six times its size in the database and in memory, so the
//! record holds the raw bytes:
//!
//! ```text
//! 0x00 0x01 | u64 length of stdout | stdout | u64 length of stderr | stderr | the JSON behind the texts     (big endian)
//! ```
//!
//! No JSON begins with 0x00, so records of earlier versions are told apart by their first byte. Output in base64 takes a third more as
//! JSON, and is stored so.

use std::sync::Arc;

use admission::error::ApiError;
use admission::memory::reserved_bytes;
use admission::output_memory::OutputMemory;
use api::OutputEncoding;
use bytes::Bytes;

use super::body::JsonBody;
use super::{BufferedOutput, Content};

/// The first bytes of a record with raw bytes.
const MARK: [u8; 2] = [0, 1];
/// JSON up to this size is stored as it is.
const JSON_BYTES: usize = 64 << 10;
/// Records from this size on are copied one at a time.
const LARGE_RECORD_BYTES: usize = 1 << 20;

/// A record's bytes, and the right to copy them.
pub struct RecordBytes<'a> {
    pub bytes: Vec<u8>,
    _copying: Option<tokio::sync::SemaphorePermit<'a>>,
}

impl Content {
    /// The record of a response.
    pub async fn to_record<'a>(&self, memory: &'a OutputMemory) -> RecordBytes<'a> {
        let output = match self {
            Self::Json(json) => return RecordBytes { bytes: json.to_vec(), _copying: None },
            Self::Output(output) => output,
        };
        let is_large = output.bytes() >= LARGE_RECORD_BYTES;
        let copying = if is_large { memory.copying().await } else { None };
        if output.length <= JSON_BYTES || output.encoding == OutputEncoding::Base64 {
            let json = JsonBody::new(Arc::clone(output)).whole();
            return RecordBytes { bytes: json.into(), _copying: copying };
        }
        let mut bytes = Vec::with_capacity(MARK.len() + 16 + output.bytes() + output.rest.len());
        bytes.extend_from_slice(&MARK);
        for text in [&output.stdout, &output.stderr] {
            let length: usize = text.iter().map(Bytes::len).sum();
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
            text.iter().for_each(|segment| bytes.extend_from_slice(segment));
        }
        bytes.extend_from_slice(&output.rest);
        RecordBytes { bytes, _copying: copying }
    }

    /// The response that a record holds. A large one counts towards the budget; where the budget does not suffice at once it is
    /// refused.
    pub async fn of_record(
        memory: &OutputMemory,
        account: &Arc<str>,
        record: Vec<u8>,
    ) -> Result<Self, ApiError> {
        let is_raw = record.starts_with(&MARK);
        if record.len() < LARGE_RECORD_BYTES && !is_raw {
            return Ok(Self::Json(record.into()));
        }
        // JSON in base64 and that of an earlier version may be larger than the budget.
        let reserved = memory.reserve_now(account, record.len())?;
        let record = reserved_bytes(record, reserved);
        if !is_raw {
            return Ok(Self::Json(record));
        }
        let rest = record.slice(MARK.len()..);
        let damaged = || ApiError::internal("an idempotency record is damaged");
        let (stdout, rest) = text(rest).ok_or_else(damaged)?;
        let (stderr, rest) = text(rest).ok_or_else(damaged)?;
        let segments = |text: Bytes| if text.is_empty() { Vec::new() } else { vec![text] };
        let (stdout, stderr) = (segments(stdout), segments(stderr));
        let output =
            BufferedOutput { stdout, stderr, encoding: OutputEncoding::Text, rest, length: 0, _memory: None };
        Ok(Self::Output(Arc::new(output.counted().await?)))
    }
}

fn text(mut bytes: Bytes) -> Option<(Bytes, Bytes)> {
    let length = u64::from_be_bytes(*bytes.first_chunk()?);
    let rest = bytes.split_off(8);
    let length = usize::try_from(length).ok().filter(|length| *length <= rest.len())?;
    Some((rest.slice(..length), rest.slice(length..)))
}
