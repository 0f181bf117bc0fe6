//! The first line of what is neither TLS nor HTTP, watched until it cannot become a request any more. Pure.
//!
//! Some servers read more as a request than any client sends: they take control bytes for blanks, or any word for a method. To
//! hold back whatever might be such a thing would break what has no lines at all (databases, LDAP, git). So it is led on at
//! once and watched while it is: a server has no request before it has the end of a line, and what would end one is kept from it.
//! A server that speaks is past that, since one of HTTP has nothing to say yet.

/// Past this no server waits for the end of a line.
const BYTES_MAX: usize = 2 << 20;
const VERSION: &[u8] = b"http/";
const GET: &[u8] = b"get";

/// What the line has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It can still become a request.
    SoFar,
    /// It has not become one.
    Over,
    /// Some server could take it for one.
    Request,
}

/// As much of the line as has to be known.
#[derive(Debug, Clone, Copy)]
pub struct FirstLine {
    seen: Seen,
    bytes: usize,
    words: u32,
    /// Of the last word, whether or not it has ended.
    word_bytes: usize,
    in_word: bool,
    /// So much of the last word, from its beginning, is as in [`VERSION`].
    version: usize,
    /// What follows that are digits and dots: a log's line may end in a version and a quote.
    is_version: bool,
    /// So much of the first word is as in [`GET`].
    get: usize,
    first_word_bytes: usize,
    /// The first word is one that can be a method by the standard, and ends as some server lets one end.
    has_method: bool,
    /// There are bytes in it that no client puts into a request.
    is_odd: bool,
    has_target: bool,
}

impl Default for FirstLine {
    fn default() -> Self {
        Self {
            seen: Seen::SoFar,
            bytes: 0,
            words: 0,
            word_bytes: 0,
            in_word: false,
            version: 0,
            is_version: true,
            get: 0,
            first_word_bytes: 0,
            has_method: true,
            is_odd: false,
            has_target: false,
        }
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
            self.seen = match byte {
                b'!'..=b'~' => self.letter(*byte),
                _ => self.gap(*byte),
            };
            if self.seen == Seen::SoFar && self.bytes >= BYTES_MAX {
                self.seen = Seen::Over;
            }
        }
        self.seen
    }

    fn letter(&mut self, byte: u8) -> Seen {
        if !self.in_word {
            (self.in_word, self.word_bytes, self.version, self.is_version) = (true, 0, 0, true);
            self.words += 1;
        }
        let at = self.word_bytes;
        let continues =
            |known: &[u8], so_far: usize| so_far == at && known.get(at) == Some(&byte.to_ascii_lowercase());
        self.version += usize::from(continues(VERSION, self.version));
        self.is_version &= at < VERSION.len() || byte.is_ascii_digit() || byte == b'.';
        if self.words == 1 {
            self.get += usize::from(continues(GET, self.get));
            self.has_method &= is_token(byte);
            self.first_word_bytes += 1;
        }
        self.has_target |= self.words == 2 && at == 0 && byte == b'/';
        self.word_bytes += 1;
        // Some servers let more follow their version, as long as what came before it is sound.
        if self.words > 1 && self.has_method && self.ends_with_version() {
            Seen::Request
        } else {
            Seen::SoFar
        }
    }

    fn gap(&mut self, byte: u8) -> Seen {
        if self.words < 2 && self.in_word | !is_blank(byte) {
            // Of the first word, or before it.
            self.has_method &= is_blank(byte);
        }
        self.in_word = false;
        let ends = matches!(byte, b'\r' | b'\n');
        self.is_odd |= !ends && !matches!(byte, b' ' | b'\t');
        if ends && self.words > 1 && self.ends_with_version() && self.is_version {
            return Seen::Request;
        }
        let is_whole = byte == b'\n' && (self.words > 0 || !self.has_method);
        match is_whole {
            // Without a version there is no other method than this.
            true if self.has_method && self.is_get() && (self.has_target || self.is_odd) => Seen::Request,
            true => Seen::Over,
            false => Seen::SoFar,
        }
    }

    fn ends_with_version(&self) -> bool {
        self.version == VERSION.len()
    }

    fn is_get(&self) -> bool {
        self.get == GET.len() && self.first_word_bytes == GET.len()
    }
}

/// What one server or another takes for a blank, the last two in Latin-1.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ' | 0x85 | 0xa0)
}

/// Whether a method may have this byte in it.
pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
