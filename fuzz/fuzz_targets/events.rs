//! Takes any bytes for a stream of Server-Sent Events, in two cuts: whole, and in pieces as the first byte says. Both have to give the
//! same events, or the same refusal.

#![no_main]

use std::collections::VecDeque;

use sandboxd_client::sse::{Event, Parser, TooLong};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, rest)) = bytes.split_first() else { return };
    let pieces = rest.chunks(usize::from(first).max(1));
    assert_eq!(parsed(pieces), parsed(std::iter::once(rest)));
});

fn parsed<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<VecDeque<Event>, TooLong> {
    let (mut parser, mut events) = (Parser::new(), VecDeque::new());
    for piece in pieces {
        parser.push(piece, &mut events)?;
    }
    Ok(events)
}
