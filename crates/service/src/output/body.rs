//! The JSON of a buffered output as a response body: each piece is encoded when the connection can send it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use api::OutputEncoding;
use axum::body::HttpBody;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::{BEFORE, BETWEEN, BufferedOutput};

/// A piece is sent when it has this many bytes.
const PIECE_BYTES: usize = 16 << 10;
/// Raw bytes that are encoded at once. Each becomes six at most.
const STEP_BYTES: usize = 4 << 10;

/// What a character of text becomes in JSON: 0 for itself, `u` for `\u00XX`, else the letter behind the backslash.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[0x08] = b'b';
    table[0x09] = b't';
    table[0x0a] = b'n';
    table[0x0c] = b'f';
    table[0x0d] = b'r';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};
const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();

/// Appends bytes as the inside of a JSON string, with U+FFFD for each sequence that is not UTF-8.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        let mut text = chunk.valid().as_bytes();
        while let Some(at) = text.iter().position(|byte| ESCAPES[usize::from(*byte)] != 0) {
            out.extend_from_slice(&text[..at]);
            let byte = text[at];
            match ESCAPES[usize::from(byte)] {
                b'u' => {
                    const DIGITS: &[u8; 16] = b"0123456789abcdef";
                    let digit = |value: u8| DIGITS[usize::from(value & 15)];
                    out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte)]);
                }
                letter => out.extend_from_slice(&[b'\\', letter]),
            }
            text = &text[at + 1..];
        }
        out.extend_from_slice(text);
        if !chunk.invalid().is_empty() {
            out.extend_from_slice(REPLACEMENT);
        }
    }
}

/// How many bytes the segments of a text become.
pub fn encoded_length(segments: &[Bytes], encoding: OutputEncoding) -> usize {
    match encoding {
        OutputEncoding::Text => segments.iter().map(|segment| escaped_length(segment)).sum(),
        OutputEncoding::Base64 => segments.iter().map(Bytes::len).sum::<usize>().div_ceil(3) * 4,
    }
}

/// How many bytes [`escape`] appends.
fn escaped_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    for chunk in bytes.utf8_chunks() {
        let extra = |byte: &u8| match ESCAPES[usize::from(*byte)] {
            0 => 0,
            b'u' => 5,
            _ => 1,
        };
        let text = chunk.valid().as_bytes();
        length += text.len() + text.iter().map(extra).sum::<usize>();
        if !chunk.invalid().is_empty() {
            length += REPLACEMENT.len();
        }
    }
    length
}

/// The part of the JSON that comes next.
#[derive(Clone, Copy)]
enum Part {
    Before,
    Stdout,
    Between,
    Stderr,
    Rest,
    End,
}

/// The JSON of an output.
pub struct JsonBody {
    output: Arc<BufferedOutput>,
    part: Part,
    segment: usize,
    offset: usize,
    /// Bytes that are too few for a group of base64.
    carried: Vec<u8>,
    left: usize,
}

impl JsonBody {
    pub fn new(output: Arc<BufferedOutput>) -> Self {
        let left = output.length;
        Self { output, part: Part::Before, segment: 0, offset: 0, carried: Vec::new(), left }
    }

    /// All of it at once.
    pub fn whole(mut self) -> Bytes {
        let mut out = Vec::with_capacity(self.left);
        while self.step(&mut out) {}
        out.into()
    }

    fn piece(&mut self) -> Bytes {
        // The last step may go past the size of a piece.
        let mut out = Vec::with_capacity(self.left.min(PIECE_BYTES + STEP_BYTES));
        while out.len() < PIECE_BYTES && self.step(&mut out) {}
        self.left = self.left.saturating_sub(out.len());
        out.into()
    }

    /// Encodes some more; `false` at the end.
    fn step(&mut self, out: &mut Vec<u8>) -> bool {
        let output = &self.output;
        let (segments, next) = match self.part {
            Part::Before => (None, Part::Stdout),
            Part::Stdout => (Some(&output.stdout), Part::Between),
            Part::Between => (None, Part::Stderr),
            Part::Stderr => (Some(&output.stderr), Part::Rest),
            Part::Rest => (None, Part::End),
            Part::End => return false,
        };
        if let Some(segment) = segments.and_then(|segments| segments.get(self.segment)) {
            let rest = &segment[self.offset..];
            self.offset += match output.encoding {
                OutputEncoding::Text => {
                    let count = rules::cut_before(rest, STEP_BYTES);
                    escape(&rest[..count], out);
                    count
                }
                OutputEncoding::Base64 => {
                    let count = rest.len().min(STEP_BYTES);
                    self.carried.extend_from_slice(&rest[..count]);
                    let whole = self.carried.len() / 3 * 3;
                    out.extend_from_slice(STANDARD.encode(&self.carried[..whole]).as_bytes());
                    self.carried.drain(..whole);
                    count
                }
            };
            if self.offset == segment.len() {
                (self.segment, self.offset) = (self.segment + 1, 0);
            }
            return true;
        }
        match self.part {
            Part::Before => out.extend_from_slice(BEFORE),
            Part::Between => out.extend_from_slice(BETWEEN),
            Part::Rest => out.extend_from_slice(&output.rest),
            Part::Stdout | Part::Stderr => {
                out.extend_from_slice(STANDARD.encode(std::mem::take(&mut self.carried)).as_bytes());
            }
            Part::End => {}
        }
        (self.part, self.segment, self.offset) = (next, 0, 0);
        true
    }
}

impl HttpBody for JsonBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.piece();
        Poll::Ready(if piece.is_empty() { None } else { Some(Ok(Frame::data(piece))) })
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left as u64)
    }
}
