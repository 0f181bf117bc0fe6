//! What is kept of a stream for a buffered response (decision 12).
//!
//! The engine pushes every chunk and takes the text when the command has ended. Memory is bounded by the limit whatever a
//! command prints: the first half is kept as it comes, the last half in a ring that older bytes leave. Where bytes are
//! missing, a line says how many, and no character is cut in two.

use crate::text::{continued, incomplete_from, lossy};

/// Keeps at most a number of bytes of a stream.
#[derive(Debug)]
pub struct CappedOutput {
    head: Vec<u8>,
    head_limit: usize,
    /// Grows to `tail_limit`, then is a ring that begins at `tail_start`.
    tail: Vec<u8>,
    tail_limit: usize,
    tail_start: usize,
    seen_bytes: u64,
}

/// A stream as it goes into a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    pub text: String,
    /// Whether anything is missing: `stdoutTruncated`, `stderrTruncated`.
    pub truncated: bool,
}

impl CappedOutput {
    pub fn new(limit_bytes: usize) -> Self {
        let tail_limit = limit_bytes / 2;
        let head_limit = limit_bytes - tail_limit;
        Self { head: Vec::new(), head_limit, tail: Vec::new(), tail_limit, tail_start: 0, seen_bytes: 0 }
    }

    /// All bytes that came so far, kept or not.
    pub fn seen_bytes(&self) -> u64 {
        self.seen_bytes
    }

    pub fn push(&mut self, chunk: &[u8]) {
        self.seen_bytes = self.seen_bytes.saturating_add(chunk.len() as u64);
        let to_head = chunk.len().min(self.head_limit - self.head.len());
        let (first, rest) = chunk.split_at(to_head);
        append(&mut self.head, first, self.head_limit);
        if !rest.is_empty() {
            self.push_tail(rest);
        }
    }

    fn push_tail(&mut self, chunk: &[u8]) {
        let chunk = &chunk[chunk.len().saturating_sub(self.tail_limit)..];
        let (grow, wrap) = chunk.split_at(chunk.len().min(self.tail_limit - self.tail.len()));
        append(&mut self.tail, grow, self.tail_limit);
        if wrap.is_empty() {
            return;
        }
        // The tail is full: overwrite from its oldest byte on, in at most two pieces.
        let (to_end, to_begin) = wrap.split_at(wrap.len().min(self.tail_limit - self.tail_start));
        self.tail[self.tail_start..self.tail_start + to_end.len()].copy_from_slice(to_end);
        self.tail[..to_begin.len()].copy_from_slice(to_begin);
        self.tail_start = (self.tail_start + wrap.len()) % self.tail_limit;
    }

    /// The text of what was kept.
    pub fn finish(self) -> Captured {
        let Self { mut head, mut tail, tail_start, seen_bytes, .. } = self;
        let complete = seen_bytes == (head.len() + tail.len()) as u64;
        if complete {
            head.append(&mut tail);
            return Captured { text: lossy(head), truncated: false };
        }
        tail.rotate_left(tail_start);
        head.truncate(incomplete_from(&head));
        let tail = &tail[continued(&tail)..];
        let missing_bytes = seen_bytes - (head.len() + tail.len()) as u64;
        let line_end = if head.is_empty() || head.ends_with(b"\n") { "" } else { "\n" };
        let gap = format!("{line_end}[... {missing_bytes} bytes are missing here ...]\n");
        head.extend_from_slice(gap.as_bytes());
        head.extend_from_slice(tail);
        Captured { text: lossy(head), truncated: true }
    }
}

/// Appends, growing by doubling but never past `limit`: the limit is what an operator sized the machine for.
fn append(to: &mut Vec<u8>, bytes: &[u8], limit: usize) {
    let needed = to.len() + bytes.len();
    if needed > to.capacity() {
        let wanted = needed.max(to.capacity() * 2).min(limit);
        to.reserve_exact(wanted - to.len());
    }
    to.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::arbitrary_bytes;
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    fn captured(limit: usize, chunks: &[&[u8]]) -> Captured {
        let mut output = CappedOutput::new(limit);
        chunks.iter().for_each(|chunk| output.push(chunk));
        output.finish()
    }

    #[test]
    fn exactly_the_limit_is_complete_and_one_more_is_not() {
        assert_eq!(captured(8, &[b"abcd", b"efgh"]), Captured { text: "abcdefgh".into(), truncated: false });
        let text = "abcd\n[... 1 bytes are missing here ...]\nfghi".into();
        assert_eq!(captured(8, &[b"abcd", b"efgh", b"i"]), Captured { text, truncated: true });
    }

    #[test]
    fn the_line_between_starts_at_a_line_start() {
        let text = "ab\n[... 3 bytes are missing here ...]\nghi".into();
        assert_eq!(captured(6, &[b"ab\ndefghi"]), Captured { text, truncated: true });
    }

    #[test]
    fn characters_are_not_cut_in_two() {
        // Head "a" + half of "ä", tail half of "ö" + "b": both halves go and are counted as missing.
        let text = "a\n[... 7 bytes are missing here ...]\nb".into();
        assert_eq!(captured(4, &["aäxxxöb".as_bytes()]), Captured { text, truncated: true });
    }

    #[test]
    fn bad_bytes_become_replacement_characters() {
        assert_eq!(captured(100, &[b"a\xFFb", b"\xE2", b"\x82\xAC"]).text, "a\u{FFFD}b€");
    }

    #[test]
    fn a_limit_of_nothing_keeps_nothing() {
        let text = "[... 5 bytes are missing here ...]\n".into();
        assert_eq!(captured(0, &[b"hello"]), Captured { text, truncated: true });
        assert_eq!(captured(0, &[]), Captured { text: String::new(), truncated: false });
        assert!(captured(1, &[b"hello"]).text.starts_with("h\n[... 4 "));
    }

    #[test]
    fn memory_stays_at_the_limit() {
        let mut output = CappedOutput::new(100_000);
        for size in [1usize, 7, 4096, 65_536, 300_000].into_iter().cycle().take(500) {
            output.push(&vec![b'x'; size]);
            assert!(output.head.capacity() + output.tail.capacity() <= 100_000);
        }
        assert_eq!(output.seen_bytes(), 100 * (1 + 7 + 4096 + 65_536 + 300_000));
    }

    fn naive(limit: usize, all: &[u8]) -> Captured {
        if all.len() <= limit {
            return Captured { text: String::from_utf8_lossy(all).into_owned(), truncated: false };
        }
        let mut head = &all[..limit.div_ceil(2)];
        let mut tail = &all[all.len() - limit / 2..];
        // Drop what is left of a character at either side of the gap.
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
        Captured { text, truncated: true }
    }

    proptest! {
        #[test]
        fn it_is_the_naive_model(
            limit in 0usize..64,
            chunks in prop::collection::vec(arbitrary_bytes(40), 0..12),
        ) {
            let mut output = CappedOutput::new(limit);
            for chunk in &chunks {
                output.push(chunk);
                prop_assert!(output.head.len() + output.tail.len() <= limit);
            }
            prop_assert_eq!(output.finish(), naive(limit, &chunks.concat()));
        }
    }
}
