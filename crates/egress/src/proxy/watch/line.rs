//! One line that could be a request or a header, byte by byte. Pure.

use super::is_token;

const VERSIONS: [&[u8]; 3] = [b"http/", b"rtsp/", b"ice/"];
const GET: &[u8] = b"get";
const HOST: &[u8] = b"host";

/// What a byte makes of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    More,
    /// Some server could take the line for a request.
    Request,
    /// The name of a header has ended.
    Header,
    /// The same, of `Host`.
    Host,
    /// The line has ended, and is no request by itself.
    Whole,
}

/// As much of a line as has to be known.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    words: u32,
    /// Of the last word, whether or not it has ended.
    word_bytes: usize,
    in_word: bool,
    /// So much of the last word, from its beginning, is as in each of [`VERSIONS`].
    versions: [usize; VERSIONS.len()],
    /// What follows that are digits and dots: a log's line may end in a version and a quote.
    is_version: bool,
    /// So much of the first word is as in [`GET`].
    get: usize,
    /// The same of [`HOST`].
    host: usize,
    first_word_bytes: usize,
    /// The first word is one that can be a method by the standard, and ends as some server lets one end.
    has_method: bool,
    /// There are bytes in it that no client puts into a request.
    is_odd: bool,
    has_blank: bool,
    /// What the second word begins with.
    target: Option<u8>,
}

impl Default for Line {
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

impl Line {
    /// Goes on with the next byte.
    pub fn read(&mut self, byte: u8) -> Part {
        match byte {
            b'!'..=b'~' => self.letter(byte),
            _ => self.gap(byte),
        }
    }

    /// Of a whole line: a request without a version. Of Python's servers it has to be a `GET`, of whatever; Node's take any
    /// method, but only targets that `sniff` knows and this.
    pub fn is_bare(&self) -> bool {
        self.words > 1 && (self.is_get() || self.target == Some(b'*'))
    }

    /// There is something between words, or before or behind them.
    pub fn has_blank(&self) -> bool {
        self.has_blank
    }

    fn letter(&mut self, byte: u8) -> Part {
        if !self.in_word {
            (self.in_word, self.word_bytes, self.is_version) = (true, 0, true);
            self.versions = [0; VERSIONS.len()];
            self.words += 1;
        }
        let at = self.word_bytes;
        let continues =
            |known: &[u8], so_far: usize| so_far == at && known.get(at) == Some(&byte.to_ascii_lowercase());
        // A blank before it is an error to most, and to some not.
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
            true if is_host => Part::Host,
            true => Part::Header,
            // Some servers let more follow their version, as long as what came before it is sound.
            false if self.words > 1 && self.has_method && self.ends_with_version() => Part::Request,
            false => Part::More,
        }
    }

    fn gap(&mut self, byte: u8) -> Part {
        if self.words < 2 && self.in_word | !is_blank(byte) {
            // Of the first word, or before it.
            self.has_method &= is_blank(byte);
        }
        self.in_word = false;
        let ends = matches!(byte, b'\r' | b'\n');
        self.is_odd |= !ends && !matches!(byte, b' ' | b'\t');
        self.has_blank |= !ends;
        if ends && self.words > 1 && self.ends_with_version() && self.is_version {
            return Part::Request;
        }
        let is_whole = byte == b'\n' && (self.words > 0 || !self.has_method);
        let has_target = self.target == Some(b'/');
        match is_whole {
            // Without a version there is no other method than this.
            true if self.has_method && self.is_get() && (has_target || self.is_odd) => Part::Request,
            true => Part::Whole,
            false => Part::More,
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

/// What one server or another takes for a blank, the last two in Latin-1.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x1f | b' ' | 0x85 | 0xa0)
}
