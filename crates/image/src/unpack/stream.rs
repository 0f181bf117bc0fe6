//! The byte stream of an archive: decompresses it, hashes it before and after, and bounds it.

use std::cell::Cell;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use sha2::{Digest, Sha256};

use super::{Rules, Unpacked, unreadable};
use crate::fault::Fault;

const BUFFER_BYTES: usize = 128 * 1024;
/// Limit of zstd's window: 2^27 bytes, the default limit of decoders.
const ZSTD_WINDOW_LOG: u32 = 27;
/// Limit of the headers of one entry: long names, extended attributes, sparse maps.
const HEADER_BYTES: u64 = 1 << 20;
/// The ratio is checked above this size: small archives of zeros are harmless.
const RATIO_FROM_BYTES: u64 = 256 << 20;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Hashes and counts the bytes read through it.
pub(super) struct Hashed<R> {
    inner: R,
    hash: Sha256,
    count: Rc<Cell<u64>>,
}

impl<R> Hashed<R> {
    fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new(), count: Rc::new(Cell::new(0)) }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hash.update(&buffer[..n]);
        self.count.set(self.count.get() + n as u64);
        Ok(n)
    }
}

pub(super) type Raw<R> = BufReader<Hashed<R>>;

/// An archive as received. Its first bytes tell the compression.
pub(super) enum Packed<R: Read> {
    Plain(Raw<R>),
    Gzip(Box<flate2::bufread::MultiGzDecoder<Raw<R>>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, Raw<R>>>),
}

impl<R: Read> Packed<R> {
    pub(super) fn open(input: R) -> Result<Self, Fault> {
        let mut raw = BufReader::with_capacity(BUFFER_BYTES, Hashed::new(input));
        let start = raw.fill_buf().map_err(unreadable)?;
        Ok(match start {
            [0x1f, 0x8b, ..] => Self::Gzip(Box::new(flate2::bufread::MultiGzDecoder::new(raw))),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(unreadable)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(unreadable)?;
                Self::Zstd(Box::new(decoder))
            }
            [b'B', b'Z', b'h', ..] | [0xfd, b'7', b'z', b'X', b'Z', ..] => {
                return Err(Fault::refused(
                    "it is packed with bzip2 or xz; allowed: gzip, zstd and plain tar",
                ));
            }
            _ => Self::Plain(raw),
        })
    }

    fn raw(&self) -> &Hashed<R> {
        match self {
            Self::Plain(raw) => raw.get_ref(),
            Self::Gzip(decoder) => decoder.get_ref().get_ref(),
            Self::Zstd(decoder) => decoder.get_ref().get_ref(),
        }
    }

    fn into_raw(self) -> Raw<R> {
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

/// The number of bytes that the tar reader may read: a limit for headers, none for the data of a file.
#[derive(Clone)]
pub(super) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    pub(super) fn headers(&self) {
        self.0.set(HEADER_BYTES);
    }

    pub(super) fn data(&self) {
        self.0.set(u64::MAX);
    }
}

/// The decompressed tar: hashed and bounded.
pub(super) struct BoundedTar<R: Read> {
    tar: Hashed<Packed<R>>,
    packed_bytes: Rc<Cell<u64>>,
    allowance: Allowance,
    tar_limit: u64,
    ratio: u64,
}

impl<R: Read> BoundedTar<R> {
    pub(super) fn new(packed: Packed<R>, rules: &Rules) -> Self {
        let limits = rules.budget.limits;
        let packed_bytes = packed.raw().count.clone();
        // A tar has a header and padding for each entry besides the content.
        let tar_limit = limits.unpacked_bytes.saturating_add(limits.entries.saturating_mul(4_096));
        let allowance = Allowance(Rc::new(Cell::new(u64::MAX)));
        Self { tar: Hashed::new(packed), packed_bytes, allowance, tar_limit, ratio: limits.ratio }
    }

    pub(super) fn allowance(&self) -> Allowance {
        self.allowance.clone()
    }

    fn measure(&mut self, n: u64) -> Result<(), Fault> {
        let left = self.allowance.0.get();
        if n > left {
            return Err(Fault::too_big(format!(
                "the headers of one entry have more than {HEADER_BYTES} bytes"
            )));
        }
        if left != u64::MAX {
            self.allowance.0.set(left - n);
        }
        let unpacked = self.tar.count.get();
        if unpacked > self.tar_limit {
            return Err(Fault::too_big(format!("the archive unpacks to more than {} bytes", self.tar_limit)));
        }
        if unpacked > RATIO_FROM_BYTES && unpacked / self.ratio > self.packed_bytes.get() {
            let ratio = self.ratio;
            return Err(Fault::too_big(format!("the archive unpacks to more than {ratio} times its size")));
        }
        Ok(())
    }

    /// Reads the bytes after the end of the archive, which the digests cover too, and returns the digests.
    pub(super) fn finish(mut self) -> Result<Unpacked, Fault> {
        io::copy(&mut self, &mut io::sink()).map_err(unreadable)?;
        let diff_id = hex(&self.tar.hash.finalize());
        let mut raw = self.tar.inner.into_raw();
        io::copy(&mut raw, &mut io::sink()).map_err(unreadable)?;
        Ok(Unpacked { diff_id, blob_id: hex(&raw.into_inner().hash.finalize()) })
    }
}

impl<R: Read> Read for BoundedTar<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.tar.read(buffer)?;
        self.measure(n as u64).map_err(io::Error::other)?;
        Ok(n)
    }
}
