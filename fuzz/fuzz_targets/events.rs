//! Parses arbitrary bytes as a stream of Server-Sent Events, once as a whole and once in pieces whose size is the first byte. Both
//! must give the same events or the same error.

#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use sandboxd_client::sse::{Event, Parser, TooLong};

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let pieces = rest.chunks(usize::from(first).max(1));
    assert_eq!(parse(pieces), parse(std::iter::once(rest)));
});

fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<VecDeque<Event>, TooLong> {
    let (mut parser, mut events) = (Parser::new(), VecDeque::new());
    for piece in pieces {
        parser.push(piece, &mut events)?;
    }
    Ok(events)
}
