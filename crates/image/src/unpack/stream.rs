//! The byte stream of an archive: decompressed and bounded by the crate `tarball`, and hashed before and after.

use std::fmt::Write as _;
use std::io::{self, Read};

use sha2::{Digest, Sha256};
use tarball::{BoundedTar, Bounds, Packed, WINDOW_LOG};

use super::{Rules, Unpacked, unreadable};
use crate::fault::Fault;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Hashes the bytes read through it.
pub(super) struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

impl<R> Hashed<R> {
    fn new(inner: R) -> Self {
        Self { inner, hash: Sha256::new() }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.hash.update(&buffer[..n]);
        Ok(n)
    }
}

/// The decompressed tar, hashed and bounded.
pub(super) type Tar<R> = Hashed<BoundedTar<Packed<Hashed<R>>>>;

/// Opens an archive, and returns its tar with the bounds that apply to it.
pub(super) fn open<R: Read>(input: R, rules: &Rules) -> Result<(Tar<R>, Bounds), Fault> {
    let packed = Packed::open(Hashed::new(input), WINDOW_LOG).map_err(unreadable)?;
    let own = rules.budget.limits;
    let limits = tarball::TarLimits {
        // A tar has a header and padding for each entry besides the content.
        unpacked_bytes: own.unpacked_bytes.saturating_add(own.entries.saturating_mul(4_096)),
        ratio: own.ratio,
        // Entries are counted for all layers of an image together, and names only where they are kept.
        ..tarball::TarLimits::HEADERS
    };
    let packed_bytes = packed.packed_bytes();
    let bounded = BoundedTar::new(packed, Some(packed_bytes), limits);
    let bounds = bounded.bounds();
    Ok((Hashed::new(bounded), bounds))
}

/// Reads the bytes after the end of the archive, which the digests cover too, and returns the digests.
pub(super) fn finish<R: Read>(mut tar: Tar<R>) -> Result<Unpacked, Fault> {
    io::copy(&mut tar, &mut io::sink()).map_err(unreadable)?;
    let diff_id = hex(&tar.hash.finalize());
    let mut raw = tar.inner.into_inner().into_raw();
    io::copy(&mut raw, &mut io::sink()).map_err(unreadable)?;
    Ok(Unpacked { diff_id, blob_id: hex(&raw.into_inner().into_inner().hash.finalize()) })
}
