//! Follows a chunked request body (RFC 9112 section 7.1) to its end, which is where the next request begins. It keeps no bytes of the
//! body. Any deviation from the RFC is an error, which ends the connection.

/// The body is not valid chunked encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadChunk;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
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
    at: At,
    left: u64,
}

impl Chunks {
    pub fn new() -> Self {
        Self { at: At::Size { digits: 0 }, left: 0 }
    }

    pub fn ended(&self) -> bool {
        self.at == At::End
    }

    /// Advances over `bytes` and returns how many of them belong to the body.
    pub fn walk(&mut self, bytes: &[u8]) -> Result<usize, BadChunk> {
        let mut seen = 0;
        while let Some(&byte) = bytes.get(seen).filter(|_| !self.ended()) {
            if self.at == At::Data {
                let rest = u64::try_from(bytes.len() - seen).unwrap_or(u64::MAX);
                let step = self.left.min(rest);
                self.left -= step;
                // At most `rest`, so it fits.
                seen += usize::try_from(step).unwrap_or(usize::MAX);
                if self.left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            self.at = self.next(byte)?;
            seen += 1;
        }
        Ok(seen)
    }

    fn next(&mut self, byte: u8) -> Result<At, BadChunk> {
        Ok(match (self.at, byte) {
            (At::Size { digits }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                let digit = char::from(byte).to_digit(16).ok_or(BadChunk)?;
                self.left = self.left << 4 | u64::from(digit);
                At::Size { digits: digits + 1 }
            }
            (At::Size { digits: 1.. }, b'\r') => At::SizeLf,
            (At::Size { digits: 1.. }, b';' | b' ' | b'\t') => At::Extension,
            (At::Extension, b'\r') => At::SizeLf,
            (At::Extension, byte) if byte != b'\n' => At::Extension,
            (At::SizeLf, b'\n') if self.left == 0 => At::TrailerStart,
            (At::SizeLf, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size { digits: 0 },
            (At::TrailerStart, b'\r') => At::EndLf,
            (At::TrailerStart | At::Trailer, byte) if byte != b'\n' => {
                if byte == b'\r' {
                    At::TrailerLf
                } else {
                    At::Trailer
                }
            }
            (At::TrailerLf, b'\n') => At::TrailerStart,
            (At::EndLf, b'\n') => At::End,
            _ => return Err(BadChunk),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"5;a=\"b\"\r\nhello\r\n00a \r\n0123456789\r\n0\r\nA: b\r\nC: d\r\n\r\n";

    #[test]
    fn the_end_is_found_however_the_bytes_come() {
        let mut all = WHOLE.to_vec();
        all.extend_from_slice(b"GET / HTTP/1.1\r\n");
        for step in 1..all.len() {
            let mut chunks = Chunks::new();
            let mut seen = 0;
            while !chunks.ended() {
                let end = (seen + step).min(all.len());
                seen += chunks.walk(&all[seen..end]).unwrap();
            }
            assert_eq!(seen, WHOLE.len(), "in steps of {step}");
        }
    }

    #[test]
    fn what_is_not_framed_is_refused() {
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
            assert_eq!(Chunks::new().walk(bytes), Err(BadChunk), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_long_chunk_is_counted_and_not_kept() {
        let mut chunks = Chunks::new();
        assert_eq!(chunks.walk(b"ffffffffffffffff\r\nabc"), Ok(21));
        assert_eq!(chunks.left, u64::MAX - 3);
    }
}
