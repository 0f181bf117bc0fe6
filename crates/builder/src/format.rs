//! Archives among the sources of `ADD`, recognized by their content.

use std::io::{self, BufReader, Read};

use crate::context::Context;

/// The header of the first entry.
const BLOCK: usize = 512;
/// In the header of an entry of a tar archive.
const MAGIC_AT: usize = 257;
const MAGIC: &[u8] = b"ustar";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Plain,
    Gzip,
    Zstd,
    Unsupported(&'static str),
}

impl Format {
    /// The format of a file of the context; `None` if it is not a tar archive. Whether a file with an unsupported compression is one
    /// is decided by its name.
    pub fn of(context: &Context, name: &str, offset: u64, size: u64) -> io::Result<Option<Self>> {
        let start = start_of(context.open(offset, size)?);
        let content = || Ok::<_, io::Error>(BufReader::new(context.open(offset, size)?));
        let is_named = |ends: &[&str]| ends.iter().any(|end| name.ends_with(end));
        Ok(match start.as_slice() {
            [0x1f, 0x8b, ..] => {
                is_tar(&start_of(flate2::bufread::MultiGzDecoder::new(content()?))).then_some(Self::Gzip)
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                is_tar(&start_of(zstd::Decoder::with_buffer(content()?)?)).then_some(Self::Zstd)
            }
            [b'B', b'Z', b'h', ..] if is_named(&[".tar.bz2", ".tbz2", ".tbz"]) => {
                Some(Self::Unsupported("bzip2"))
            }
            [0xfd, b'7', b'z', b'X', b'Z', ..] if is_named(&[".tar.xz", ".txz"]) => {
                Some(Self::Unsupported("xz"))
            }
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
