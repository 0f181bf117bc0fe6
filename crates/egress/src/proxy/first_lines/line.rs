//! Examines one line that could be a request or a header, byte by byte.

use super::is_token;

const VERSIONS: [&[u8]; 3] = [b"http/", b"rtsp/", b"ice/"];
const GET: &[u8] = b"get";
const HOST: &[u8] = b"host";

/// The state of the line after a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinePart {
    More,
    /// Some server could accept the line as a request.
    Request,
    /// The name of a header has ended.
    Header,
    /// The name `Host` has ended.
    Host,
    /// The line has ended and is no request by itself.
    Whole,
}

/// The state of a line.
#[derive(Debug, Clone, Copy)]
pub struct LineState {
    words: u32,
    /// About the last word, whether or not it has ended.
    word_bytes: usize,
    in_word: bool,
    /// For each of [`VERSIONS`], the length of the prefix that the last word shares with it.
    versions: [usize; VERSIONS.len()],
    /// After that prefix follow digits and dots: a line of a log can end in a version and a quote.
    is_version: bool,
    /// The length of the prefix that the first word shares with [`GET`].
    get: usize,
    /// The same for [`HOST`].
    host: usize,
    first_word_bytes: usize,
    /// The first word can be a method by the standard, and ends in a way that some server accepts.
    has_method: bool,
    /// The line contains bytes that no client puts into a request.
    is_odd: bool,
    has_blank: bool,
    /// The first bytes of the second word.
    target: Option<u8>,
}

impl Default for LineState {
    fn default() -> Self {
        Self {
            words: 0,
            word_bytes: 0,
            in_word: false,
            versions: [0; VERSIONS.len()],
            is_version: true,
            get: 0,
            host: 0,
            first_word_bytes: 0,
            has_method: true,
            is_odd: false,
            has_blank: false,
            target: None,
        }
    }
}

impl LineState {
    /// Examines the next byte.
    pub fn read(&mut self, byte: u8) -> LinePart {
        match byte {
            b'!'..=b'~' => self.letter(byte),
            _ => self.gap(byte),
        }
    }

    /// Whether a complete line is a request without a version. Python's servers accept only `GET`, with any target; Node's
    /// accept any method, but only targets that `sniff` identifies and this.
    pub fn is_bare(&self) -> bool {
        self.words > 1 && (self.is_get() || self.target == Some(b'*'))
    }

    /// There is a separator between words, or before or behind them.
    pub fn has_blank(&self) -> bool {
        self.has_blank
    }

    fn letter(&mut self, byte: u8) -> LinePart {
        if !self.in_word {
            (self.in_word, self.word_bytes, self.is_version) = (true, 0, true);
            self.versions = [0; VERSIONS.len()];
            self.words += 1;
        }
        let at = self.word_bytes;
        let continues =
            |known: &[u8], so_far: usize| so_far == at && known.get(at) == Some(&byte.to_ascii_lowercase());
        // Most servers refuse a blank before it, some accept it.
        let ends_name = byte == b':' && (self.words == 1 && at > 0 || self.words == 2 && at == 0);
        let is_host = self.host == HOST.len() && self.first_word_bytes == HOST.len();
        for (so_far, known) in self.versions.iter_mut().zip(VERSIONS) {
            *so_far += usize::from(continues(known, *so_far));
        }
        self.is_version &= self.within_version(at) || byte.is_ascii_digit() || byte == b'.';
        if self.words == 1 {
            self.get += usize::from(continues(GET, self.get));
            self.host += usize::from(continues(HOST, self.host));
            self.has_method &= is_token(byte);
            self.first_word_bytes += 1;
        }
        if self.words == 2 && at == 0 {
            self.target = Some(byte);
        }
        self.word_bytes += 1;
        match ends_name {
            true if is_host => LinePart::Host,
            true => LinePart::Header,
            // Some servers accept more data behind the version, if the line before it is valid.
            false if self.words > 1 && self.has_method && self.ends_with_version() => LinePart::Request,
            false => LinePart::More,
        }
    }

    fn gap(&mut self, byte: u8) -> LinePart {
        if self.words < 2 && self.in_word | !is_blank(byte) {
            // Inside or before the first word.
            self.has_method &= is_blank(byte);
        }
        self.in_word = false;
        let ends = matches!(byte, b'\r' | b'\n');
        self.is_odd |= !ends && !matches!(byte, b' ' | b'\t');
        self.has_blank |= !ends;
        if ends && self.words > 1 && self.ends_with_version() && self.is_version {
            return LinePart::Request;
        }
        let is_whole = byte == b'\n' && (self.words > 0 || !self.has_method);
        let has_target = self.target == Some(b'/');
        match is_whole {
            // Without a version, this is the only method.
            true if self.has_method && self.is_get() && (has_target || self.is_odd) => LinePart::Request,
            true => LinePart::Whole,
            false => LinePart::More,
        }
    }

    /// Whether a byte of the last word still belongs to the name of a version.
    fn within_version(&self, at: usize) -> bool {
        self.versions.iter().zip(VERSIONS).any(|(so_far, known)| at < known.len() && *so_far == at + 1)
    }

    fn ends_with_version(&self) -> bool {
        self.versions.iter().zip(VERSIONS).any(|(so_far, known)| *so_far == known.len())
    }

    fn is_get(&self) -> bool {
        self.get == GET.len() && self.first_word_bytes == GET.len()
    }
}

/// The bytes that some server accepts as a blank, the last two in Latin-1.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ' | 0x85 | 0xa0)
}
