//! The first lines of what is neither TLS nor HTTP, watched until they cannot become a request any more. Pure.
//!
//! Some servers read more as a request than any client sends: they take control bytes for blanks, or any word for a method. To
//! hold back whatever might be such a thing would break what has no lines at all (databases, LDAP, git). So it is led on at
//! once and watched while it is: a server has no request before it has the end of a line, and what would end one is kept from it.
//! A server that speaks is past that, since one of HTTP has nothing to say yet.
//!
//! A line without a version is as well one of Redis (`GET key`, `KEYS *`) as a request (Python's, Node's). Only what follows
//! tells, and only that does harm: the name of a host, a header that keeps the connection open, or another request.

mod line;

use line::{Line, Part};

/// Past this no server waits for the end of a line.
const BYTES_MAX: usize = 2 << 20;

/// What the lines have come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// They can still become a request.
    SoFar,
    /// They have not become one.
    Over,
    /// Some server could take them for one.
    Request,
}

/// What the first line was, once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// What common servers take for a request from before there were versions, and what follows for its headers.
    Bare,
    /// What could be a request only to a server that looks at nothing but blanks (uWSGI). It would still go by a `Host`.
    Words,
}

/// As much of the lines as has to be known.
#[derive(Debug, Clone, Copy)]
pub struct FirstLine {
    seen: Seen,
    bytes: usize,
    line: Line,
    behind: Behind,
    /// Since the last newline.
    line_bytes: usize,
    last: u8,
}

impl Default for FirstLine {
    fn default() -> Self {
        let behind = Behind::Nothing;
        Self { seen: Seen::SoFar, bytes: 0, line: Line::default(), behind, line_bytes: 0, last: 0 }
    }
}

impl FirstLine {
    /// Goes on with what follows.
    pub fn read(&mut self, bytes: &[u8]) -> Seen {
        for byte in bytes {
            if self.seen != Seen::SoFar {
                break;
            }
            self.bytes += 1;
            self.seen = match self.behind {
                Behind::Nothing => self.first(*byte),
                Behind::Bare | Behind::Words => self.later(*byte),
            };
            if self.seen == Seen::SoFar && self.bytes >= BYTES_MAX {
                self.seen = Seen::Over;
            }
        }
        self.seen
    }

    fn first(&mut self, byte: u8) -> Seen {
        match self.line.read(byte) {
            Part::Request => return Seen::Request,
            Part::More | Part::Header | Part::Host => return Seen::SoFar,
            Part::Whole => {}
        }
        self.behind = match std::mem::take(&mut self.line) {
            line if line.is_bare() => Behind::Bare,
            line if line.has_blank() => Behind::Words,
            _ => return Seen::Over,
        };
        Seen::SoFar
    }

    fn later(&mut self, byte: u8) -> Seen {
        let is_bare = self.behind == Behind::Bare;
        match self.line.read(byte) {
            Part::Host => return Seen::Request,
            Part::Header | Part::Request if is_bare => return Seen::Request,
            // Behind other lines it may be a log of requests.
            Part::Header | Part::Request | Part::More | Part::Whole => {}
        }
        let is_empty = self.line_bytes == 0 || self.line_bytes == 1 && self.last == b'\r';
        self.last = byte;
        self.line_bytes += 1;
        // Some let a header end like this already.
        if matches!(byte, b'\r' | b'\n') {
            self.line = Line::default();
        }
        if byte == b'\n' {
            self.line_bytes = 0;
            if is_empty && !is_bare {
                return Seen::Over;
            }
        }
        Seen::SoFar
    }
}

/// Whether a method may have this byte in it.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
