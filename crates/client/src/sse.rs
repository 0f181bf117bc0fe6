//! An incremental parser for Server-Sent Events as defined by the HTML standard. It buffers at most one event, of bounded size.

use std::collections::VecDeque;
use std::fmt;

/// Far above a line of output of 64 KiB, even if each byte became U+FFFD.
const LONGEST: usize = 4 << 20;
/// A field of one word.
const LONGEST_WORD: usize = 64;
/// Ids of the service have some 20 bytes. Every event has a copy of the last one, so a long id would multiply.
const LONGEST_ID: usize = 256;

/// A Server-Sent Event.
///
/// ```
/// use sandboxd_client::sse::{Event, Parser};
/// # use std::collections::VecDeque;
/// let mut events = VecDeque::new();
/// Parser::new().push(b"id: 7\nevent: stdout\ndata: one\ndata: two\n\n", &mut events)?;
/// assert_eq!(
///     events[0],
///     Event { name: "stdout".into(), data: "one\ntwo".into(), id: Some("7".into()), end: None, encoding: None },
/// );
/// # Ok::<(), sandboxd_client::sse::TooLong>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The event name; `message` by default.
    pub name: String,
    /// The data lines, joined by line feeds.
    pub data: String,
    /// The last id received with this event or before it, for `Last-Event-ID`.
    pub id: Option<String>,
    /// The line end of the data, if the stream was requested with line ends; a field specific to sandboxd.
    pub end: Option<String>,
    /// The encoding of the data, if it is not text; a field specific to sandboxd.
    pub encoding: Option<String>,
}

/// The error for an event longer than 4 MiB.
///
/// ```
/// use sandboxd_client::sse::Parser;
/// let endless = vec![b'x'; 5 << 20];
/// let error = Parser::new().push(&endless, &mut Default::default()).unwrap_err();
/// assert!(error.to_string().contains("4194304"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event of the stream is longer than {LONGEST} bytes")
    }
}

impl std::error::Error for TooLong {}

/// A parser for one stream.
///
/// ```
/// use sandboxd_client::sse::Parser;
/// let (mut parser, mut events) = (Parser::new(), Default::default());
/// parser.push(b"data: in pie", &mut events)?;
/// assert!(std::collections::VecDeque::is_empty(&events));
/// parser.push(b"ces\n\n", &mut events)?;
/// assert_eq!(events[0].data, "in pieces");
/// # Ok::<(), sandboxd_client::sse::TooLong>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Parser {
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// Whether the last line ended with CR, so that a following LF belongs to it.
    after_cr: bool,
    begun: bool,
    name: String,
    data: String,
    has_data: bool,
    end: Option<String>,
    encoding: Option<String>,
    /// The id of the current event, or of the last one.
    id: Option<String>,
    /// The id of the last complete event.
    last_id: Option<String>,
}

impl Parser {
    /// A parser at the beginning of a stream.
    ///
    /// ```
    /// let parser = sandboxd_client::sse::Parser::new();
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses the next bytes and appends completed events to `to`.
    ///
    /// ```
    /// # use std::collections::VecDeque;
    /// let mut events = VecDeque::new();
    /// sandboxd_client::sse::Parser::new().push(b": a comment\n\ndata: x\n\n", &mut events)?;
    /// assert_eq!(events.len(), 1);
    /// # Ok::<(), sandboxd_client::sse::TooLong>(())
    /// ```
    pub fn push(&mut self, mut bytes: &[u8], to: &mut VecDeque<Event>) -> Result<(), TooLong> {
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.room_for(bytes.len())?;
                self.line.extend_from_slice(bytes);
                return Ok(());
            };
            self.room_for(end)?;
            self.after_cr = bytes[end] == b'\r';
            if self.line.is_empty() {
                // The common case avoids a copy.
                self.take(&bytes[..end], to);
            } else {
                self.line.extend_from_slice(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                self.take(&line, to);
            }
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// The last id received, for `Last-Event-ID` after a lost connection. Events without data, which are not returned, count;
    /// incomplete events do not.
    ///
    /// ```
    /// let mut parser = sandboxd_client::sse::Parser::new();
    /// parser.push(b"id: 7\n\nid: 8\ndata: broken o", &mut Default::default())?;
    /// assert_eq!(parser.last_id(), Some("7"));
    /// # Ok::<(), sandboxd_client::sse::TooLong>(())
    /// ```
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    fn room_for(&self, more: usize) -> Result<(), TooLong> {
        let held = self.line.len() + self.data.len() + self.name.len();
        if held.saturating_add(more) > LONGEST { Err(TooLong) } else { Ok(()) }
    }

    fn take(&mut self, mut line: &[u8], to: &mut VecDeque<Event>) {
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event(to);
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = colon.map_or((line, &line[..0]), |at| (&line[..at], &line[at + 1..]));
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.name = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(&String::from_utf8_lossy(value));
            }
            b"id" if value.len() <= LONGEST_ID && !value.contains(&0) => {
                self.id = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"end" if value.len() <= LONGEST_WORD => {
                self.end = Some(String::from_utf8_lossy(value).into_owned());
            }
            b"encoding" if value.len() <= LONGEST_WORD => {
                self.encoding = Some(String::from_utf8_lossy(value).into_owned());
            }
            // A comment, `retry`, or an unknown field.
            _ => {}
        }
    }

    fn end_event(&mut self, to: &mut VecDeque<Event>) {
        self.last_id.clone_from(&self.id);
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        let (end, encoding) = (self.end.take(), self.encoding.take());
        if !std::mem::take(&mut self.has_data) {
            return;
        }
        let name = if name.is_empty() { "message".to_owned() } else { name };
        to.push_back(Event { name, data, id: self.id.clone(), end, encoding });
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use crate::cases;

    fn parsed(pieces: &[&[u8]]) -> Vec<Event> {
        let (mut parser, mut events) = (Parser::new(), VecDeque::new());
        pieces.iter().for_each(|piece| parser.push(piece, &mut events).unwrap());
        events.into()
    }

    fn event(name: &str, data: &str, id: Option<&str>) -> Event {
        Event { name: name.into(), data: data.into(), id: id.map(str::to_owned), end: None, encoding: None }
    }

    #[derive(Deserialize)]
    struct Case {
        name: String,
        chunks: Vec<String>,
        events: Vec<Expected>,
    }

    #[derive(Deserialize)]
    struct Expected {
        event: String,
        data: String,
        id: Option<String>,
    }

    #[test]
    fn streams_are_parsed() {
        for case in cases::of::<Case>(include_str!("../../../sdk/cases/sse.json")) {
            let expected: Vec<Event> = case
                .events
                .iter()
                .map(|expected| event(&expected.event, &expected.data, expected.id.as_deref()))
                .collect();
            let chunks: Vec<&[u8]> = case.chunks.iter().map(|chunk| chunk.as_bytes()).collect();
            assert_eq!(parsed(&chunks), expected, "{}", case.name);
            let whole = chunks.concat();
            let bytes: Vec<&[u8]> = whole.chunks(1).collect();
            assert_eq!(parsed(&bytes), expected, "{}, byte by byte", case.name);
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused_before_it_fills_the_memory() {
        for endless in ["x", "data: x\n", "event: x"] {
            let piece = endless.repeat(1 << 16);
            let (mut parser, mut events) = (Parser::new(), VecDeque::new());
            let refused = (0..2048).find_map(|_| parser.push(piece.as_bytes(), &mut events).err());
            assert_eq!((refused, events.len()), (Some(TooLong), 0), "{endless:?}");
            assert!(parser.line.len() + parser.data.len() + parser.name.len() <= LONGEST + piece.len());
        }
    }

    #[test]
    fn a_bomb_takes_no_more_than_a_few_times_the_longest_event() {
        const PIECE: usize = 64 << 10;
        // An event takes some 200 bytes without its id.
        let events_of_a_piece = PIECE / 7 * (200 + LONGEST_ID);
        let limit = 3 * LONGEST + events_of_a_piece;
        let longest_id = format!("id: {}\n", "i".repeat(LONGEST_ID));
        let long_id = format!("id: {}\n", "i".repeat(LONGEST / 2));
        for (name, begin, repeated) in [
            ("a line", "", "x"),
            ("a line of bytes that are not UTF-8", "data: ", "\u{ff}"),
            ("data", "", "data: x\n"),
            ("empty data", "", "data\n"),
            ("a name", "event: ", "x"),
            ("an id", "id: ", "x"),
            ("events", "", "data:\n\n"),
            ("events after a long id", long_id.as_str(), "data:\n\n"),
            ("events after the longest id", longest_id.as_str(), "data:\n\n"),
            ("comments", "", ":\n"),
            ("ends", "", "end: x\n"),
            ("encodings", "", "encoding: x\n"),
        ] {
            let used = measure(|| {
                let (mut parser, mut events) = (Parser::new(), VecDeque::new());
                let piece = repeated.repeat(PIECE / repeated.len());
                let begun = parser.push(begin.as_bytes(), &mut events);
                for _ in 0..16 << 20 >> 16 {
                    // The reader takes the events before it reads on.
                    if begun.is_err() || parser.push(piece.as_bytes(), &mut events).is_err() {
                        break;
                    }
                    events.clear();
                }
            });
            assert!(used.bytes_max <= limit as u64, "{name}: {} bytes", used.bytes_max);
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just(b"data: a".to_vec()), Just(b"event: b".to_vec()), Just(b"id: 1".to_vec()),
                    Just(b"\n".to_vec()), Just(b"\r".to_vec()), Just(b"\r\n".to_vec()), Just(b":".to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..6),
                ],
                0..40,
            ),
            cuts in proptest::collection::vec(1..9usize, 1..9),
        ) {
            let whole: Vec<u8> = parts.concat();
            let mut pieces: Vec<&[u8]> = Vec::new();
            let (mut rest, mut cut) = (whole.as_slice(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (piece, left) = rest.split_at((*cut.next().unwrap()).min(rest.len()));
                pieces.push(piece);
                rest = left;
            }
            prop_assert_eq!(parsed(&pieces), parsed(&[&whole]));
        }

        #[test]
        fn what_is_written_is_read(lines in proptest::collection::vec("[^\r\n]*", 1..5), name in "[a-z]{1,9}") {
            let data: String = lines.iter().map(|line| format!("data: {line}\n")).collect();
            let text = format!("event: {name}\n{data}\n");
            prop_assert_eq!(parsed(&[text.as_bytes()]), vec![event(&name, &lines.join("\n"), None)]);
        }
    }
}
