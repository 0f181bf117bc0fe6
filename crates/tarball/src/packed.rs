//! Recognizes the compression of an archive, and decompresses it.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

const BUFFER_BYTES: usize = 128 * 1024;
/// The window that decoders of zstd accept by default: 128 MiB of memory.
pub const WINDOW_LOG: u32 = 27;
/// The window of all levels of zstd up to 19: 8 MiB of memory. Every decoder has to support it.
pub const SMALL_WINDOW_LOG: u32 = 23;

/// The archive has a compression that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is packed with bzip2 or xz; allowed: gzip, zstd and plain tar")]
pub struct Unsupported;

/// The first frame of a zstd archive needs more memory than its reader gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it needs a window of {needed} bytes; allowed: {allowed}; compress it without the options --long and --ultra of zstd"
)]
pub struct LargeWindow {
    pub needed: u64,
    pub allowed: u64,
}

impl LargeWindow {
    /// Whether it caused an error of [`Packed::open`].
    pub fn is_in(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }

    fn check(start: &[u8], window_log: u32) -> io::Result<()> {
        let allowed = 1 << window_log;
        match window_of(start) {
            Some(needed) if needed > allowed => Err(io::Error::other(Self { needed, allowed })),
            _ => Ok(()),
        }
    }
}

/// The window that the header of a zstd frame asks for. `None` if the header is incomplete or none.
fn window_of(frame: &[u8]) -> Option<u64> {
    let (descriptor, fields) = frame.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?.split_first()?;
    if descriptor & 0x20 == 0 {
        let window = *fields.first()?;
        let base = 1 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    // A frame of one segment: its window is its content, whose size follows the id of a dictionary.
    let size = fields.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
    Some(match descriptor >> 6 {
        0 => u64::from(*size.first()?),
        1 => u64::from(u16::from_le_bytes(*size.first_chunk()?)) + 256,
        2 => u64::from(u32::from_le_bytes(*size.first_chunk()?)),
        _ => u64::from_le_bytes(*size.first_chunk()?),
    })
}

/// A number of bytes that grows while they are read. Clones refer to the same number.
#[derive(Debug, Clone, Default)]
pub struct ByteCount(Rc<Cell<u64>>);

impl ByteCount {
    /// The bytes until now.
    pub fn get(&self) -> u64 {
        self.0.get()
    }
}

/// Counts the bytes that are read through it.
#[derive(Debug)]
pub struct Counted<R> {
    inner: R,
    count: ByteCount,
}

impl<R> Counted<R> {
    /// The reader below.
    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.count.0.set(self.count.get() + n as u64);
        Ok(n)
    }
}

/// An archive as it was received.
pub type Raw<R> = BufReader<Counted<R>>;

/// An archive, of which its reader sees the plain tar. Its first bytes tell the compression.
pub enum Packed<R: Read> {
    Plain(Raw<R>),
    Gzip(Box<MultiGzDecoder<Raw<R>>>),
    Zstd(Box<Decoder<'static, Raw<R>>>),
}

impl<R: Read> Packed<R> {
    /// Reads the first bytes. The error has [`Unsupported`] if their compression is, and [`LargeWindow`] if the window of zstd is
    /// larger than `window_log` says. Frames behind the first one are refused when they are read.
    pub fn open(input: R, window_log: u32) -> io::Result<Self> {
        let counted = Counted { inner: input, count: ByteCount::default() };
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, counted);
        let start = raw.fill_buf()?;
        Ok(match start {
            [0x1f, 0x8b, ..] => Self::Gzip(Box::new(MultiGzDecoder::new(raw))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                LargeWindow::check(start, window_log)?;
                let mut decoder = Decoder::with_buffer(raw)?;
                decoder.window_log_max(window_log)?;
                Self::Zstd(Box::new(decoder))
            }
            [b'B', b'Z', b'h', ..] | [0xfd, b'7', b'z', b'X', b'Z', ..] => {
                return Err(io::Error::other(Unsupported));
            }
            _ => Self::Plain(raw),
        })
    }

    /// The bytes of the archive that have been read.
    pub fn packed_bytes(&self) -> ByteCount {
        let raw = match self {
            Self::Plain(raw) => raw,
            Self::Gzip(decoder) => decoder.get_ref(),
            Self::Zstd(decoder) => decoder.get_ref(),
        };
        raw.get_ref().count.clone()
    }

    /// The archive as it was received, behind what has been decompressed.
    pub fn into_raw(self) -> Raw<R> {
        match self {
            Self::Plain(raw) => raw,
            Self::Gzip(decoder) => decoder.into_inner(),
            Self::Zstd(decoder) => decoder.finish(),
        }
    }
}

impl<R: Read> Read for Packed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(raw) => raw.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}
