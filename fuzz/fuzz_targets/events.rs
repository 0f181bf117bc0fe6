//! Parses arbitrary bytes as a stream of Server-Sent Events, once as a whole and once in pieces whose size is the first byte. Both
//! must give the same events or the same error, and take no more memory than a few times the bytes.

#![no_main]

use std::collections::VecDeque;

use allocation_counter::measure;
use libfuzzer_sys::fuzz_target;
use sandboxd_client::sse::{Event, Parser, TooLong};

/// An event of six bytes takes some 200, and 256 more with a copy of the longest id.
const BYTES_PER_BYTE: usize = 128;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let pieces = rest.chunks(usize::from(first).max(1));
    let mut whole = Err(TooLong);
    let peak = measure(|| whole = parse(std::iter::once(rest))).bytes_max;
    assert!(peak <= (BYTES_PER_BYTE * rest.len() + 4096) as u64, "{peak} bytes for {}", rest.len());
    assert_eq!(parse(pieces), whole);
});

fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<VecDeque<Event>, TooLong> {
    let (mut parser, mut events) = (Parser::new(), VecDeque::new());
    for piece in pieces {
        parser.push(piece, &mut events)?;
    }
    Ok(events)
}
