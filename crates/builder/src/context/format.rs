//! Archives among the sources of `ADD`, recognized by their content.

use std::io::{self, Read};

use tarball::{LargeWindow, Packed, SMALL_WINDOW_LOG};

use crate::context::Context;

/// The header of the first entry.
const BLOCK: usize = 512;
/// The first block is found in this much of a compressed archive, or there is none.
const SEARCHED_BYTES: u64 = 1 << 20;
/// In the header of an entry of a tar archive.
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar";

/// How an archive is compressed. The agent unpacks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Plain,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

impl Format {
    /// The format of a file of the context; `None` if it is not a tar archive. Whether a file with an unsupported compression is one
    /// is decided by its name.
    pub fn of(context: &Context, name: &str, offset: u64, size: u64) -> io::Result<Option<Self>> {
        let content = || context.open(offset, size.min(SEARCHED_BYTES));
        let is_named = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        let is_packed_tar = || match Packed::open(content()?, SMALL_WINDOW_LOG) {
            Ok(packed) => Ok(is_tar(&start_of(packed))),
            // Its name decides, so that its unpacking says why it fails.
            Err(error) if LargeWindow::is_in(&error) => Ok(is_named(&[".tar.zst", ".tzst"])),
            Err(error) => Err(error),
        };
        Ok(match start_of(content()?).as_slice() {
            [0x1f, 0x8b, ..] => is_packed_tar()?.then_some(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => is_packed_tar()?.then_some(Self::Zstd),
            [b'B', b'Z', b'h', ..] if is_named(&[".tar.bz2", ".tbz2", ".tbz"]) => Some(Self::Bzip2),
            [0xfd, b'7', b'z', b'X', b'Z', ..] if is_named(&[".tar.xz", ".txz"]) => Some(Self::Xz),
            start => is_tar(start).then_some(Self::Plain),
        })
    }
}

/// As much of the first block as there is. What cannot be decompressed is not an archive.
fn start_of(content: impl Read) -> Vec<u8> {
    let mut start = Vec::with_capacity(BLOCK);
    let _ = content.take(BLOCK as u64).read_to_end(&mut start);
    start
}

fn is_tar(start: &[u8]) -> bool {
    start.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(MAGIC)
}
