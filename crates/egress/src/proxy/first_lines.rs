//! Examines the first lines of a connection that is neither TLS nor HTTP, until they cannot become a request.
//!
//! Some servers accept requests that no client sends: control bytes as blanks, or any word as a method. Holding back
//! all such data would break protocols without lines (databases, LDAP, git). The data is therefore forwarded at once
//! and examined meanwhile: a server has no request before the end of a line, and the byte that would end one is
//! withheld. The check ends when the server sends something, because an HTTP server sends nothing before a request.
//!
//! A line without a version can be a command of Redis (`GET key`, `KEYS *`) or a request (Python's, Node's). Only the
//! following data distinguishes them, and only that is harmful: a host name, a header that keeps the connection open,
//! or another request.

mod line;

use line::{LinePart, LineState};

/// No server waits longer for the end of a line.
const BYTES_MAX: usize = 2 << 20;

/// The state of the examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestCheck {
    /// The lines can still become a request.
    Undecided,
    /// They cannot.
    NotARequest,
    /// Some server could accept them as a request.
    Request,
}

/// The kind of the first line, once it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    Nothing,
    /// A request without a version (HTTP/0.9) to common servers; they would parse what follows as headers.
    Bare,
    /// A request only to a server that looks at nothing but blanks (uWSGI). It would still use a `Host`.
    Words,
}

/// The state of the first lines.
#[derive(Debug, Clone, Copy)]
pub struct FirstLine {
    seen: RequestCheck,
    bytes: usize,
    line: LineState,
    behind: Behind,
    /// Bytes since the last newline.
    line_bytes: usize,
    last: u8,
}

impl Default for FirstLine {
    fn default() -> Self {
        let behind = Behind::Nothing;
        Self {
            seen: RequestCheck::Undecided,
            bytes: 0,
            line: LineState::default(),
            behind,
            line_bytes: 0,
            last: 0,
        }
    }
}

impl FirstLine {
    /// Examines further bytes.
    pub fn read(&mut self, bytes: &[u8]) -> RequestCheck {
        for byte in bytes {
            if self.seen != RequestCheck::Undecided {
                break;
            }
            self.bytes += 1;
            self.seen = match self.behind {
                Behind::Nothing => self.first(*byte),
                Behind::Bare | Behind::Words => self.later(*byte),
            };
            if self.seen == RequestCheck::Undecided && self.bytes >= BYTES_MAX {
                self.seen = RequestCheck::NotARequest;
            }
        }
        self.seen
    }

    fn first(&mut self, byte: u8) -> RequestCheck {
        match self.line.read(byte) {
            LinePart::Request => return RequestCheck::Request,
            LinePart::More | LinePart::Header | LinePart::Host => return RequestCheck::Undecided,
            LinePart::Whole => {}
        }
        self.behind = match std::mem::take(&mut self.line) {
            line if line.is_bare() => Behind::Bare,
            line if line.has_blank() => Behind::Words,
            _ => return RequestCheck::NotARequest,
        };
        RequestCheck::Undecided
    }

    fn later(&mut self, byte: u8) -> RequestCheck {
        let is_bare = self.behind == Behind::Bare;
        match self.line.read(byte) {
            LinePart::Host => return RequestCheck::Request,
            LinePart::Header | LinePart::Request if is_bare => return RequestCheck::Request,
            // After other lines this can be a log of requests.
            LinePart::Header | LinePart::Request | LinePart::More | LinePart::Whole => {}
        }
        let is_empty = self.line_bytes == 0 || self.line_bytes == 1 && self.last == b'\r';
        self.last = byte;
        self.line_bytes += 1;
        // Some servers accept this as the end of a header.
        if matches!(byte, b'\r' | b'\n') {
            self.line = LineState::default();
        }
        if byte == b'\n' {
            self.line_bytes = 0;
            if is_empty && !is_bare {
                return RequestCheck::NotARequest;
            }
        }
        RequestCheck::Undecided
    }
}

/// Whether a method may contain this byte.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
