//! The captured output of a buffered response.
//!
//! The caller pushes every chunk and gets the captured output when the command has ended. The limit bounds the memory: the first
//! half is stored as it arrives, the last half in a ring buffer. A line replaces missing bytes and states their number; no
//! character is split.
//!
//! Memory grows with the output, in blocks that never move: a caller can reserve it beforehand ([`CappedOutput::memory_with`]).

pub mod lines;
pub mod position;
pub mod readers;

use crate::text::{continued, incomplete_from, lossy};

/// The unit of memory of an output that is larger than one block.
pub const OUTPUT_BLOCK_BYTES: usize = 64 * 1024;
/// The smallest allocation.
const FIRST_BYTES: usize = 64;

/// Keeps at most `limit` bytes of a stream.
#[derive(Debug)]
pub struct CappedOutput {
    head: Blocks,
    /// Grows to its limit, then is a ring that begins at `tail_start`.
    tail: Blocks,
    tail_start: usize,
    seen_bytes: u64,
}

/// The captured bytes of a stream, as they go into a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The bytes in order. No character is split between two segments.
    pub segments: Vec<Vec<u8>>,
    /// Whether bytes are missing: `stdoutTruncated`, `stderrTruncated`.
    pub truncated: bool,
}

impl Captured {
    /// The captured bytes as text.
    pub fn into_text(self) -> String {
        lossy(self.segments.concat())
    }
}

impl CappedOutput {
    /// Keeps at most `limit_bytes`, half of them from the end.
    pub fn new(limit_bytes: usize) -> Self {
        let tail_limit = limit_bytes / 2;
        let (head, tail) = (Blocks::new(limit_bytes - tail_limit), Blocks::new(tail_limit));
        Self { head, tail, tail_start: 0, seen_bytes: 0 }
    }

    /// Number of bytes pushed so far.
    pub fn seen_bytes(&self) -> u64 {
        self.seen_bytes
    }

    /// Bytes of memory that are allocated.
    pub fn memory(&self) -> usize {
        self.memory_with(0)
    }

    /// Bytes of memory that are allocated after `more` further bytes are pushed.
    pub fn memory_with(&self, more: usize) -> usize {
        let head = self.head.length.saturating_add(more).min(self.head.limit);
        let to_tail = more.saturating_sub(self.head.limit - self.head.length);
        let tail = self.tail.length.saturating_add(to_tail).min(self.tail.limit);
        memory_for(head, self.head.limit) + memory_for(tail, self.tail.limit)
    }

    /// Adds output; what exceeds the limit is dropped from the middle.
    pub fn push(&mut self, chunk: &[u8]) {
        self.seen_bytes = self.seen_bytes.saturating_add(chunk.len() as u64);
        let rest = self.head.append(chunk);
        if !rest.is_empty() {
            self.push_tail(rest);
        }
    }

    fn push_tail(&mut self, chunk: &[u8]) {
        let limit = self.tail.limit;
        let chunk = &chunk[chunk.len().saturating_sub(limit)..];
        let wrap = self.tail.append(chunk);
        if wrap.is_empty() {
            return;
        }
        // The tail is full: overwrite from its oldest byte on, in at most two parts.
        let (to_end, to_begin) = wrap.split_at(wrap.len().min(limit - self.tail_start));
        self.tail.overwrite(self.tail_start, to_end);
        self.tail.overwrite(0, to_begin);
        self.tail_start = (self.tail_start + wrap.len()) % limit;
    }

    /// The captured bytes, with a line in place of missing ones.
    pub fn finish(self) -> Captured {
        let Self { head, tail, tail_start, seen_bytes } = self;
        let retained = (head.length + tail.length) as u64;
        let mut segments = head.blocks;
        if seen_bytes == retained {
            segments.extend(tail.blocks);
            return Captured { segments: whole_characters(segments), truncated: false };
        }
        let mut tail = tail.rotated(tail_start);
        let cut = cut_incomplete(&mut segments) + skip_continued(&mut tail);
        let missing_bytes = seen_bytes - retained + cut as u64;
        let ends_line =
            segments.iter().rev().find_map(|segment| segment.last()).is_none_or(|last| *last == b'\n');
        let line_end = if ends_line { "" } else { "\n" };
        segments.push(format!("{line_end}[... {missing_bytes} bytes are missing here ...]\n").into_bytes());
        segments.extend(tail);
        Captured { segments: whole_characters(segments), truncated: true }
    }
}

/// At most `limit` bytes, in blocks.
#[derive(Debug)]
struct Blocks {
    blocks: Vec<Vec<u8>>,
    length: usize,
    limit: usize,
}

/// Memory of the blocks that hold `length` bytes: one growing block, then blocks of full size; never more than `limit`.
fn memory_for(length: usize, limit: usize) -> usize {
    match length {
        0 => 0,
        _ if length <= OUTPUT_BLOCK_BYTES => length.next_power_of_two().max(FIRST_BYTES).min(limit),
        _ => length.next_multiple_of(OUTPUT_BLOCK_BYTES).min(limit),
    }
}

impl Blocks {
    fn new(limit: usize) -> Self {
        Self { blocks: Vec::new(), length: 0, limit }
    }

    /// Appends what fits below the limit and returns the rest.
    fn append<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (mut fitting, rest) = bytes.split_at(bytes.len().min(self.limit - self.length));
        while !fitting.is_empty() {
            let filled = self.length % OUTPUT_BLOCK_BYTES;
            let (part, after) = fitting.split_at(fitting.len().min(OUTPUT_BLOCK_BYTES - filled));
            if filled == 0 {
                self.blocks.push(Vec::new());
            }
            let before = (self.blocks.len() - 1) * OUTPUT_BLOCK_BYTES;
            let capacity = memory_for(self.length + part.len(), self.limit) - before;
            if let Some(block) = self.blocks.last_mut() {
                block.reserve_exact(capacity - block.len());
                block.extend_from_slice(part);
            }
            self.length += part.len();
            fitting = after;
        }
        rest
    }

    /// Replaces the bytes from `at` on, all of which are there.
    fn overwrite(&mut self, mut at: usize, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let block = &mut self.blocks[at / OUTPUT_BLOCK_BYTES][at % OUTPUT_BLOCK_BYTES..];
            let (part, rest) = bytes.split_at(bytes.len().min(block.len()));
            block[..part.len()].copy_from_slice(part);
            (at, bytes) = (at + part.len(), rest);
        }
    }

    /// The bytes from `start` on, then those before it.
    fn rotated(self, start: usize) -> Vec<Vec<u8>> {
        let mut blocks = self.blocks;
        if start == 0 {
            return blocks;
        }
        let (at, offset) = (start / OUTPUT_BLOCK_BYTES, start % OUTPUT_BLOCK_BYTES);
        let mut after = blocks.split_off(at);
        if let Some(first) = after.first_mut() {
            let before = first[..offset].to_vec();
            first.drain(..offset);
            blocks.push(before);
        }
        after.extend(blocks);
        after
    }
}

/// Removes the start of a character from the end, and returns how many bytes that were.
fn cut_incomplete(segments: &mut [Vec<u8>]) -> usize {
    let Some(at) = segments.iter().rposition(|segment| !segment.is_empty()) else { return 0 };
    // The first bytes of the character may be in the segment before.
    let (before, last) = segments.split_at_mut(at);
    let mut end: Vec<u8> =
        before.last().map(|segment| segment[segment.len().saturating_sub(3)..].to_vec()).unwrap_or_default();
    end.extend_from_slice(&last[0][last[0].len().saturating_sub(3)..]);
    let cut = end.len() - incomplete_from(&end);
    let from_last = cut.min(last[0].len());
    let length = last[0].len();
    last[0].truncate(length - from_last);
    if let Some(segment) = before.last_mut() {
        segment.truncate(segment.len() - (cut - from_last));
    }
    cut
}

/// Removes the rest of a character from the front, and returns how many bytes that were.
fn skip_continued(segments: &mut [Vec<u8>]) -> usize {
    let mut skipped = 0;
    for segment in segments {
        let count = continued(segment).min(3 - skipped);
        segment.drain(..count);
        skipped += count;
        if !segment.is_empty() {
            break;
        }
    }
    skipped
}

/// Moves the bytes of each character that two segments share into a segment of their own.
fn whole_characters(segments: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut whole: Vec<Vec<u8>> = Vec::with_capacity(segments.len());
    for mut segment in segments {
        if let Some(last) = whole.last_mut() {
            let mut shared = last.split_off(incomplete_from(last));
            if !shared.is_empty() {
                shared.extend(segment.drain(..continued(&segment)));
                if last.is_empty() {
                    *last = shared;
                } else {
                    whole.push(shared);
                }
            }
        }
        if !segment.is_empty() {
            whole.push(segment);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::arbitrary_bytes;
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    /// The captured text.
    #[derive(Debug, PartialEq)]
    struct Text {
        text: String,
        truncated: bool,
    }

    fn captured(limit: usize, chunks: &[&[u8]]) -> Text {
        let mut output = CappedOutput::new(limit);
        chunks.iter().for_each(|chunk| output.push(chunk));
        text_of(output.finish())
    }

    fn text_of(captured: Captured) -> Text {
        let truncated = captured.truncated;
        Text { text: captured.into_text(), truncated }
    }

    #[test]
    fn exactly_the_limit_is_complete_and_one_more_is_not() {
        assert_eq!(captured(8, &[b"abcd", b"efgh"]), Text { text: "abcdefgh".into(), truncated: false });
        let text = "abcd\n[... 1 bytes are missing here ...]\nfghi".into();
        assert_eq!(captured(8, &[b"abcd", b"efgh", b"i"]), Text { text, truncated: true });
    }

    #[test]
    fn the_gap_line_starts_a_line() {
        let text = "ab\n[... 3 bytes are missing here ...]\nghi".into();
        assert_eq!(captured(6, &[b"ab\ndefghi"]), Text { text, truncated: true });
    }

    #[test]
    fn characters_are_not_cut_in_two() {
        // Head "a" + half of "ä", tail half of "ö" + "b": both halves go and are counted as missing.
        let text = "a\n[... 7 bytes are missing here ...]\nb".into();
        assert_eq!(captured(4, &["aäxxxöb".as_bytes()]), Text { text, truncated: true });
    }

    #[test]
    fn bad_bytes_become_replacement_characters() {
        assert_eq!(captured(100, &[b"a\xFFb", b"\xE2", b"\x82\xAC"]).text, "a\u{FFFD}b€");
    }

    #[test]
    fn a_limit_of_zero_keeps_no_output() {
        let text = "[... 5 bytes are missing here ...]\n".into();
        assert_eq!(captured(0, &[b"hello"]), Text { text, truncated: true });
        assert_eq!(captured(0, &[]), Text { text: String::new(), truncated: false });
        assert!(captured(1, &[b"hello"]).text.starts_with("h\n[... 4 "));
    }

    #[test]
    fn memory_stays_at_the_limit() {
        let mut output = CappedOutput::new(100_000);
        for size in [1usize, 7, 4096, 65_536, 300_000].into_iter().cycle().take(500) {
            let expected = output.memory_with(size);
            output.push(&vec![b'x'; size]);
            let allocated = |blocks: &Blocks| blocks.blocks.iter().map(Vec::capacity).sum::<usize>();
            assert_eq!(allocated(&output.head) + allocated(&output.tail), expected);
            assert_eq!(output.memory(), expected);
            assert!(expected <= 100_000);
        }
        assert_eq!(output.seen_bytes(), 100 * (1 + 7 + 4096 + 65_536 + 300_000));
    }

    fn naive(limit: usize, all: &[u8]) -> Text {
        if all.len() <= limit {
            return Text { text: String::from_utf8_lossy(all).into_owned(), truncated: false };
        }
        let mut head = &all[..limit.div_ceil(2)];
        let mut tail = &all[all.len() - limit / 2..];
        // Drop the parts of characters at both sides of the gap.
        for lost in 1..=3.min(head.len()) {
            let (before, last) = head.split_at(head.len() - lost);
            if last[0] >= 0xC0 {
                if std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none()) {
                    head = before;
                }
                break;
            }
        }
        for _ in 0..3 {
            match tail {
                [0x80..=0xBF, rest @ ..] => tail = rest,
                _ => break,
            }
        }
        let missing = all.len() - head.len() - tail.len();
        let mut text = String::from_utf8_lossy(head).into_owned();
        if !(head.is_empty() || head.ends_with(b"\n")) {
            text.push('\n');
        }
        text += &format!("[... {missing} bytes are missing here ...]\n");
        text += &String::from_utf8_lossy(tail);
        Text { text, truncated: true }
    }

    #[test]
    fn large_outputs_are_the_naive_model_across_blocks() {
        let text: Vec<u8> = "aä€😀z\u{1}\n".bytes().cycle().take(700_001).collect();
        for limit in [2 * OUTPUT_BLOCK_BYTES, 300_001, 655_360, 700_000, 700_001, 1_000_000] {
            for size in [1000, 65_536, 65_537, 700_001] {
                let mut output = CappedOutput::new(limit);
                text.chunks(size).for_each(|chunk| output.push(chunk));
                let captured = output.finish();
                let parts: String = captured.segments.iter().map(|part| lossy(part.clone())).collect();
                let captured = text_of(captured);
                assert_eq!(parts, captured.text, "limit {limit}, chunks of {size}");
                assert!(captured == naive(limit, &text), "limit {limit}, chunks of {size}");
            }
        }
    }

    proptest! {
        #[test]
        fn capture_behaves_like_the_naive_model(
            limit in 0usize..64,
            chunks in prop::collection::vec(arbitrary_bytes(40), 0..12),
        ) {
            let mut output = CappedOutput::new(limit);
            for chunk in &chunks {
                output.push(chunk);
                prop_assert!(output.head.length + output.tail.length <= limit);
            }
            let captured = output.finish();
            let parts: String = captured.segments.iter().map(|part| lossy(part.clone())).collect();
            prop_assert_eq!(&parts, &captured.clone().into_text());
            prop_assert_eq!(text_of(captured), naive(limit, &chunks.concat()));
        }
    }
}
