//! Splits a stream of output into lines, one per event.
//!
//! The engine takes pieces out of each chunk and passes each on before it takes the next, so that a slow reader blocks the command
//! instead of filling memory: at most one piece is buffered. The line end (`\n` or `\r\n`) is not part of a piece; a line over
//! [`MAX_PIECE_BYTES`] comes in pieces that split no character; pieces are text, with U+FFFD for invalid sequences.

use crate::text::{cut_before, lossy};

/// The maximum length of a piece, in bytes as the command wrote them.
pub const MAX_PIECE_BYTES: usize = 64 * 1024;
/// A piece of maximum length, and the `\r` that may belong to its line end.
const MAX_HELD_BYTES: usize = MAX_PIECE_BYTES + 1;

/// How a piece ended in the output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LineEnd {
    /// With `\n`.
    #[default]
    Feed,
    /// With `\r\n`.
    ReturnFeed,
    /// Without a line end: the line continues in the next piece, or the stream ended.
    None,
}

impl LineEnd {
    /// The value of the event field `end`; `None` for `\n`.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Feed => None,
            Self::ReturnFeed => Some("crlf"),
            Self::None => Some("none"),
        }
    }
}

/// Splits one stream into lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    /// The part of the current line that was not returned yet.
    held: Vec<u8>,
    /// Of the last returned piece.
    end: LineEnd,
}

impl LineSplitter {
    /// Before the first byte of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `chunk` until a piece is complete. `None`: `chunk` is used up.
    pub fn next_piece(&mut self, chunk: &mut &[u8]) -> Option<String> {
        while !chunk.is_empty() {
            if let Some(piece) = self.overlong() {
                return Some(piece);
            }
            let window = &chunk[..chunk.len().min(MAX_HELD_BYTES + 1 - self.held.len())];
            let end = window.iter().position(|byte| *byte == b'\n');
            let part = &window[..end.unwrap_or(window.len())];
            if self.held.is_empty() && end.is_some() && part.len() <= MAX_PIECE_BYTES {
                *chunk = &chunk[part.len() + 1..];
                let line = without_cr(part);
                self.end = end_of(line, part);
                return Some(lossy(line.to_vec()));
            }
            self.held.extend_from_slice(part);
            *chunk = &chunk[part.len()..];
            if let Some(piece) = self.overlong() {
                return Some(piece);
            }
            if end.is_some() {
                *chunk = &chunk[1..];
                let length = without_cr(&self.held).len();
                self.end = end_of(&self.held[..length], &self.held);
                self.held.truncate(length);
                return Some(lossy(std::mem::take(&mut self.held)));
            }
        }
        None
    }

    /// What is left when the stream has ended, piece by piece: a last line without a line end.
    pub fn next_remainder(&mut self) -> Option<String> {
        if self.held.is_empty() {
            return None;
        }
        let cut = cut_before(&self.held, MAX_PIECE_BYTES);
        Some(self.take(cut))
    }

    /// How the last returned piece ended.
    pub fn last_end(&self) -> LineEnd {
        self.end
    }

    /// How many bytes were received and not returned.
    pub fn held_bytes(&self) -> usize {
        self.held.len()
    }

    /// The first piece of a line that does not fit into one piece.
    fn overlong(&mut self) -> Option<String> {
        let may_be_line_end = self.held.len() == MAX_HELD_BYTES && self.held.ends_with(b"\r");
        if self.held.len() <= MAX_PIECE_BYTES || may_be_line_end {
            return None;
        }
        let cut = cut_before(&self.held, MAX_PIECE_BYTES);
        Some(self.take(cut))
    }

    fn take(&mut self, cut: usize) -> String {
        self.end = LineEnd::None;
        let rest = self.held.split_off(cut);
        lossy(std::mem::replace(&mut self.held, rest))
    }
}

fn without_cr(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The end of a line, by the text before its `\n`.
fn end_of(line: &[u8], before: &[u8]) -> LineEnd {
    if line.len() < before.len() { LineEnd::ReturnFeed } else { LineEnd::Feed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tests::arbitrary_bytes;
    use proptest::prelude::{
        ProptestConfig, Strategy, prop, prop_assert, prop_assert_eq, prop_oneof, proptest,
    };

    fn split(chunks: &[&[u8]]) -> Vec<String> {
        let (mut splitter, mut pieces) = (LineSplitter::new(), Vec::new());
        for mut chunk in chunks.iter().copied() {
            while let Some(piece) = splitter.next_piece(&mut chunk) {
                pieces.push(piece);
                assert!(splitter.held.len() <= MAX_HELD_BYTES + 1);
            }
            assert!(chunk.is_empty());
        }
        while let Some(piece) = splitter.next_remainder() {
            pieces.push(piece);
        }
        pieces
    }

    fn lengths(pieces: &[String]) -> Vec<usize> {
        pieces.iter().map(String::len).collect()
    }

    #[test]
    fn lines_across_chunks() {
        assert_eq!(split(&[b"one\ntw", b"o\n\nthree\r\nfo", b"ur"]), ["one", "two", "", "three", "four"]);
        assert_eq!(split(&[b"a\r", b"\nb\rc\n", b"\r\r\n"]), ["a", "b\rc", "\r"]);
        assert_eq!(split(&[]), Vec::<String>::new());
        assert_eq!(split(&[b"\n"]), [""]);
        assert_eq!(split(&[b"x\r"]), ["x\r"]);
    }

    #[test]
    fn characters_across_chunks() {
        let text = "grün €😀".as_bytes();
        let bytewise: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(split(&bytewise), ["grün €😀"]);
        assert_eq!(split(&[b"\xE2", b"\x82\n", b"\xFF"]), ["\u{FFFD}", "\u{FFFD}"]);
    }

    #[test]
    fn a_line_of_exactly_a_piece_is_one_piece() {
        let line = vec![b'x'; MAX_PIECE_BYTES];
        assert_eq!(lengths(&split(&[&line, b"\n"])), [MAX_PIECE_BYTES]);
        assert_eq!(lengths(&split(&[&line, b"\r", b"\n"])), [MAX_PIECE_BYTES]);
        assert_eq!(lengths(&split(&[&line, b"\r\r\n"])), [MAX_PIECE_BYTES, 1]);
        assert_eq!(lengths(&split(&[&line])), [MAX_PIECE_BYTES]);
        assert_eq!(lengths(&split(&[&line, b"y\n"])), [MAX_PIECE_BYTES, 1]);
        assert_eq!(lengths(&split(&[&line, b"\r"])), [MAX_PIECE_BYTES, 1]);
    }

    #[test]
    fn pieces_split_no_character() {
        let mut line = vec![b'x'; MAX_PIECE_BYTES - 1];
        line.extend_from_slice("€€\nnext".as_bytes());
        let pieces = split(&[&line]);
        assert_eq!(lengths(&pieces), [MAX_PIECE_BYTES - 1, 6, 4]);
        assert_eq!(pieces[1], "€€");
    }

    #[test]
    fn a_line_without_end_holds_one_piece_of_memory() {
        let mut splitter = LineSplitter::new();
        for _ in 0..2_000 {
            let chunk = vec![b'x'; 8_000];
            let mut chunk = chunk.as_slice();
            while splitter.next_piece(&mut chunk).is_some() {}
            assert!(splitter.held.capacity() <= 4 * MAX_PIECE_BYTES);
        }
    }

    /// With its ends every piece stands as it was written.
    fn joined(chunks: &[&[u8]]) -> String {
        let (mut splitter, mut all) = (LineSplitter::new(), String::new());
        let end = |splitter: &LineSplitter| match splitter.last_end() {
            LineEnd::Feed => "\n",
            LineEnd::ReturnFeed => "\r\n",
            LineEnd::None => "",
        };
        for mut chunk in chunks.iter().copied() {
            while let Some(piece) = splitter.next_piece(&mut chunk) {
                all.push_str(&piece);
                all.push_str(end(&splitter));
            }
        }
        while let Some(piece) = splitter.next_remainder() {
            all.push_str(&piece);
            all.push_str(end(&splitter));
        }
        all
    }

    #[test]
    fn line_endings_are_preserved() {
        let long = "x".repeat(MAX_PIECE_BYTES);
        for text in
            ["a\nb", "a\r\nb\rc\r", "\n\r\n\r\r\n", "", &long, &format!("{long}y\r\n{long}\r\n{long}\r")]
        {
            let halves = text.as_bytes().split_at(text.len() / 2);
            assert_eq!(joined(&[text.as_bytes()]), text);
            assert_eq!(joined(&[halves.0, halves.1]), text);
        }
    }

    fn naive(all: &[u8]) -> Vec<String> {
        let mut pieces = Vec::new();
        let mut rest = all;
        while !rest.is_empty() {
            let (mut line, after) = match rest.iter().position(|byte| *byte == b'\n') {
                Some(end) => (rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), &rest[end + 1..]),
                None => (rest, &[][..]),
            };
            rest = after;
            while line.len() > MAX_PIECE_BYTES {
                let cut = cut_before(line, MAX_PIECE_BYTES);
                pieces.push(String::from_utf8_lossy(&line[..cut]).into_owned());
                line = &line[cut..];
            }
            pieces.push(String::from_utf8_lossy(line).into_owned());
        }
        pieces
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Short lines and lines around the size of a piece, cut into chunks anywhere.
        #[test]
        fn capture_behaves_like_the_naive_model(
            parts in prop::collection::vec(
                prop_oneof![
                    arbitrary_bytes(30),
                    (MAX_PIECE_BYTES - 4..MAX_PIECE_BYTES + 4).prop_map(|length| vec![b'x'; length]),
                ],
                0..6,
            ),
            cuts in prop::collection::vec(1usize..100_000, 1..8),
        ) {
            let all = parts.concat();
            let mut chunks = Vec::new();
            let mut rest = all.as_slice();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                chunks.push(chunk);
                rest = after;
            }
            // What is no text does not come out as it went in.
            if std::str::from_utf8(&all).is_ok() {
                prop_assert_eq!(joined(&chunks).into_bytes(), all.clone());
            }
            let pieces = split(&chunks);
            prop_assert!(pieces.iter().all(|piece| piece.len() <= 3 * MAX_PIECE_BYTES));
            prop_assert_eq!(pieces, naive(&all));
        }
    }
}
