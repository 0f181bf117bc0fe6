//! The response to `ListDir`: its text is written in pieces while the agent sends the entries, and each piece is counted in the
//! account's memory for responses before it is allocated. If there is no memory, or the text is too long, the call fails before it has
//! an answer; nothing is left behind.

use std::io;

use admission::output_memory::OutputReservation;
use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use engine::PathDetails;
use futures_util::stream;

use super::entry;
use crate::envd::connect::{Code, RpcError};
use crate::envd::failure::{Failure, JSON_TYPE};

/// Size of the pieces of a long listing, and of the first one.
const PIECE_BYTES: usize = 64 << 10;
const FIRST_PIECE_BYTES: usize = 4 << 10;
/// Most bytes of the text: 100,000 entries, the most of a listing, with some 330 bytes each.
const MAX_BYTES: usize = 32 << 20;
const BEGIN: &[u8] = br#"{"entries":["#;
const END: &[u8] = b"]}";

/// A listing while it is written.
pub struct Listing {
    memory: OutputReservation,
    pieces: Vec<Bytes>,
    /// The piece that is written.
    current: Vec<u8>,
    /// Bytes of the text, and of the memory that is reserved for it.
    length: usize,
    reserved: usize,
    is_empty: bool,
}

impl Listing {
    /// An empty listing, which reserves nothing yet.
    pub fn new(memory: OutputReservation) -> Self {
        let (pieces, current) = (Vec::new(), Vec::new());
        Self { memory, pieces, current, length: 0, reserved: 0, is_empty: true }
    }

    /// Appends an entry.
    pub async fn push(&mut self, details: &PathDetails) -> Result<(), Failure> {
        let text = entry::to_json(details).to_string();
        let before: &[u8] = if self.is_empty { BEGIN } else { b"," };
        self.is_empty = false;
        self.write(before).await?;
        self.write(text.as_bytes()).await
    }

    async fn write(&mut self, text: &[u8]) -> Result<(), Failure> {
        self.length += text.len();
        if self.length > MAX_BYTES {
            let message = format!(
                "the listing has more than {MAX_BYTES} bytes; use a smaller depth, or list parts of the directory"
            );
            return Err(Failure::new(Code::ResourceExhausted, message));
        }
        if self.current.len() + text.len() > self.current.capacity() {
            let capacity = text.len().max(self.length.clamp(FIRST_PIECE_BYTES, PIECE_BYTES));
            let reserved = self.reserved + capacity;
            let covered = self.memory.cover(reserved).await;
            covered.map_err(RpcError::refused)?;
            self.reserved = reserved;
            let full = std::mem::replace(&mut self.current, Vec::with_capacity(capacity));
            if !full.is_empty() {
                self.pieces.push(full.into());
            }
        }
        self.current.extend_from_slice(text);
        Ok(())
    }

    /// The response, which holds the memory until its last byte is sent.
    pub async fn into_response(mut self) -> Result<Response, Failure> {
        if self.is_empty {
            self.write(BEGIN).await?;
        }
        self.write(END).await?;
        let Self { memory, mut pieces, current, length, .. } = self;
        pieces.push(current.into());
        let body = stream::unfold((pieces.into_iter(), memory), |(mut pieces, memory)| async move {
            let piece = Ok::<_, io::Error>(pieces.next()?);
            Some((piece, (pieces, memory)))
        });
        let headers = [(header::CONTENT_TYPE, JSON_TYPE), (header::CONTENT_LENGTH, length.into())];
        Ok((headers, Body::from_stream(body)).into_response())
    }
}

#[cfg(test)]
mod tests {
    use admission::output_memory::OutputMemory;
    use allocation_counter::measure;
    use engine::{FileInfo, FileKind};
    use futures_util::FutureExt as _;
    use http_body_util::BodyExt as _;
    use serde_json::Value;

    use super::*;

    /// A listing in a budget of so many bytes.
    fn listing(most: usize) -> (Listing, OutputMemory) {
        let memory = OutputMemory::new(most, most, 0);
        (Listing::new(memory.response(&"one".into())), memory)
    }

    fn measured(work: impl FnOnce()) -> usize {
        usize::try_from(measure(work).bytes_max).unwrap()
    }

    fn file(number: usize, name_bytes: usize) -> PathDetails {
        PathDetails {
            path: format!("/workspace/many/{number:0name_bytes$}").into_bytes(),
            info: FileInfo {
                kind: FileKind::File,
                mode: 0o644,
                size: 0,
                modified_ns: 1_700_000_000_000_000_000,
                inode: 1,
                target: None,
            },
            uid: 1000,
            gid: 1000,
            owner: "user".to_owned(),
            group: "user".to_owned(),
            link: None,
            attributes: Vec::new(),
        }
    }

    async fn push_all(listing: &mut Listing, count: usize, name_bytes: usize) -> Result<(), Failure> {
        for number in 0..count {
            listing.push(&file(number, name_bytes)).await?;
        }
        Ok(())
    }

    fn pushed(listing: &mut Listing, count: usize, name_bytes: usize) -> Result<(), Failure> {
        push_all(listing, count, name_bytes).now_or_never().expect("a budget that does not wait")
    }

    #[test]
    fn a_long_listing_holds_no_more_than_its_text() {
        let (mut listing, reserved) = listing(1 << 30);
        let peak = measured(|| pushed(&mut listing, 99_014, 10).unwrap());
        let (length, reserved) = (listing.length, reserved.reserved_bytes());
        assert!(length > 18 << 20, "{length}");
        assert!(peak < length + length / 50 + 64 * 1024, "{peak} bytes for {length}");
        assert!(reserved + 64 * 1024 > peak, "{reserved} bytes reserved, {peak} used");
    }

    #[tokio::test]
    async fn the_memory_is_held_until_the_last_byte_is_read() {
        for count in [0, 1, 3, 5000] {
            let (mut listing, reserved) = listing(1 << 30);
            pushed(&mut listing, count, 10).unwrap();
            let response = listing.into_response().await.unwrap();
            assert_ne!(reserved.reserved_bytes(), 0);
            let length: usize = response.headers()["content-length"].to_str().unwrap().parse().unwrap();
            let text = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!((reserved.reserved_bytes(), text.len()), (0, length));
            let json: Value = serde_json::from_slice(&text).unwrap();
            let entries = json["entries"].as_array().unwrap();
            assert_eq!(entries.len(), count);
            assert!(entries.iter().enumerate().all(|(at, entry)| *entry == entry::to_json(&file(at, 10))));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_listing_without_memory_or_too_long_is_refused() {
        let code = |failure: Failure| failure.code();
        let (mut small, reserved) = listing(1 << 20);
        assert_eq!(push_all(&mut small, 99_014, 10).await.map_err(code), Err(Some(Code::ResourceExhausted)));
        assert!(reserved.reserved_bytes() <= 1 << 20);
        drop(small);
        assert_eq!(reserved.reserved_bytes(), 0);
        let (mut long, _) = listing(1 << 30);
        let mut refused = Ok(());
        let peak = measured(|| refused = pushed(&mut long, 99_014, 4000).map_err(code));
        assert_eq!(refused, Err(Some(Code::ResourceExhausted)));
        assert!(peak < MAX_BYTES + MAX_BYTES / 20, "{peak}");
    }
}
