//! Follows a chunked request body (RFC 9112 section 7.1) to its end, which is where the next request begins. It keeps no bytes of the
//! body. Any deviation from the RFC is an error, which ends the connection.

/// The body is not valid chunked encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadChunk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPosition {
    Size {
        digits: u8,
    },
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// At the first byte of a trailer line.
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

/// The position within a chunked body.
#[derive(Debug, Clone)]
pub struct Chunks {
    at: ChunkPosition,
    left: u64,
}

impl Chunks {
    pub fn new() -> Self {
        Self { at: ChunkPosition::Size { digits: 0 }, left: 0 }
    }

    /// Whether the last chunk and the trailers are over.
    pub fn ended(&self) -> bool {
        self.at == ChunkPosition::End
    }

    /// Advances over `bytes` and returns how many of them belong to the body.
    pub fn advance(&mut self, bytes: &[u8]) -> Result<usize, BadChunk> {
        let mut consumed = 0;
        while let Some(&byte) = bytes.get(consumed).filter(|_| !self.ended()) {
            if self.at == ChunkPosition::Data {
                let rest = u64::try_from(bytes.len() - consumed).unwrap_or(u64::MAX);
                let step = self.left.min(rest);
                self.left -= step;
                // At most `rest`, so it fits.
                consumed += usize::try_from(step).unwrap_or(usize::MAX);
                if self.left == 0 {
                    self.at = ChunkPosition::DataCr;
                }
                continue;
            }
            self.at = self.next(byte)?;
            consumed += 1;
        }
        Ok(consumed)
    }

    fn next(&mut self, byte: u8) -> Result<ChunkPosition, BadChunk> {
        Ok(match (self.at, byte) {
            (ChunkPosition::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                self.left = self.left << 4 | u64::from(digit);
                ChunkPosition::Size { digits: digits + 1 }
            }
            (ChunkPosition::Size { digits: 1.. }, b'\r') => ChunkPosition::SizeLf,
            (ChunkPosition::Size { digits: 1.. }, b';' | b' ' | b'\t') => ChunkPosition::Extension,
            (ChunkPosition::Extension, b'\r') => ChunkPosition::SizeLf,
            (ChunkPosition::Extension, byte) if byte != b'\n' => ChunkPosition::Extension,
            (ChunkPosition::SizeLf, b'\n') if self.left == 0 => ChunkPosition::TrailerStart,
            (ChunkPosition::SizeLf, b'\n') => ChunkPosition::Data,
            (ChunkPosition::DataCr, b'\r') => ChunkPosition::DataLf,
            (ChunkPosition::DataLf, b'\n') => ChunkPosition::Size { digits: 0 },
            (ChunkPosition::TrailerStart, b'\r') => ChunkPosition::EndLf,
            (ChunkPosition::TrailerStart | ChunkPosition::Trailer, byte) if byte != b'\n' => {
                if byte == b'\r' { ChunkPosition::TrailerLf } else { ChunkPosition::Trailer }
            }
            (ChunkPosition::TrailerLf, b'\n') => ChunkPosition::TrailerStart,
            (ChunkPosition::EndLf, b'\n') => ChunkPosition::End,
            _ => return Err(BadChunk),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE: &[u8] = b"5;a=\"b\"\r\nhello\r\n00a \r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n";

    #[test]
    fn the_end_is_found_for_any_split_of_the_bytes() {
        let mut all = COMPLETE.to_vec();
        all.extend_from_slice(b"GET / HTTP/1.1\r\n");
        for step in 1..all.len() {
            let mut chunks = Chunks::new();
            let mut consumed = 0;
            while !chunks.ended() {
                let end = (consumed + step).min(all.len());
                consumed += chunks.advance(&all[consumed..end]).unwrap();
            }
            assert_eq!(consumed, COMPLETE.len(), "in steps of {step}");
        }
    }

    #[test]
    fn invalid_framing_is_refused() {
        let odd: [&[u8]; 9] = [
            b"\r\n",
            b"g\r\n",
            b"-1\r\n",
            b"5\nhello",
            b"5\r\nhelloX",
            b"5\r\nhello\rX",
            b"00000000000000001\r\n",
            b"0\r\n\n",
            b"5;a\nhello",
        ];
        for bytes in odd {
            assert_eq!(Chunks::new().advance(bytes), Err(BadChunk), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_long_chunk_is_counted_and_not_buffered() {
        let mut chunks = Chunks::new();
        assert_eq!(chunks.advance(b"ffffffffffffffff\r\nabc"), Ok(21));
        assert_eq!(chunks.left, u64::MAX - 3);
    }
}
