//! The bounds of an archive, and the reader that enforces them.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::rc::Rc;

use tar::{Entries, Entry};

use crate::packed::ByteCount;

/// Most bytes in the headers of one entry: long names, extended attributes, maps of sparse files.
pub const HEADER_BYTES: u64 = 1 << 20;
/// The ratio is checked above this size: small archives of zeros are harmless.
const RATIO_FROM_BYTES: u64 = 256 << 20;

/// What an archive may have. `u64::MAX` where the caller has a bound of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TarLimits {
    /// Bytes of the tar without compression, headers included.
    pub unpacked_bytes: u64,
    /// Bytes of the tar for each byte of the compressed archive, checked above 256 MiB.
    pub ratio: u64,
    /// Files, directories, links and all other entries.
    pub entries: u64,
    /// Bytes of the names and the link targets of all entries.
    pub name_bytes: u64,
}

impl TarLimits {
    /// Bounds only the headers of each entry.
    pub const HEADERS: Self =
        Self { unpacked_bytes: u64::MAX, ratio: u64::MAX, entries: u64::MAX, name_bytes: u64::MAX };
}

/// The bound that an archive exceeds. The message is a clause of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    #[error("the headers of one entry have more than {allowed} bytes")]
    HeaderBytes { allowed: u64 },
    #[error("the archive unpacks to more than {allowed} bytes")]
    UnpackedBytes { allowed: u64 },
    #[error("the archive unpacks to more than {allowed} times its size")]
    Ratio { allowed: u64 },
    #[error("the archive has more than {allowed} entries")]
    Entries { allowed: u64 },
    #[error("the names in the archive have more than {allowed} bytes together")]
    NameBytes { allowed: u64 },
}

impl Exceeded {
    /// The bound that caused an error of the reader, if one did.
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }
}

/// Counts what an archive has had so far. Clones count together.
#[derive(Debug, Clone)]
pub struct Bounds(Rc<Counts>);

#[derive(Debug)]
struct Counts {
    limits: TarLimits,
    packed_bytes: Option<ByteCount>,
    header_bytes_left: Cell<u64>,
    unpacked_bytes: Cell<u64>,
    entries: Cell<u64>,
    name_bytes: Cell<u64>,
}

impl Bounds {
    /// The next entry. The data of the one before must have been read ([`drain`]), unless the archive is read with seeks.
    pub fn next<'a, R: Read>(&self, entries: &mut Entries<'a, R>) -> io::Result<Option<Entry<'a, R>>> {
        self.0.header_bytes_left.set(HEADER_BYTES);
        let next = entries.next().transpose();
        self.0.header_bytes_left.set(u64::MAX);
        let Some(entry) = next? else { return Ok(None) };
        let TarLimits { entries, name_bytes, .. } = self.0.limits;
        let link_bytes = entry.link_name_bytes().map_or(0, |target| target.len());
        let names = (entry.path_bytes().len() + link_bytes) as u64;
        add(&self.0.entries, 1, entries, Exceeded::Entries { allowed: entries })?;
        add(&self.0.name_bytes, names, name_bytes, Exceeded::NameBytes { allowed: name_bytes })?;
        Ok(Some(entry))
    }

    fn count_read(&self, n: u64) -> io::Result<()> {
        let left = self.0.header_bytes_left.get();
        if n > left {
            return Err(io::Error::other(Exceeded::HeaderBytes { allowed: HEADER_BYTES }));
        }
        if left != u64::MAX {
            self.0.header_bytes_left.set(left - n);
        }
        let TarLimits { unpacked_bytes, ratio, .. } = self.0.limits;
        let exceeded = Exceeded::UnpackedBytes { allowed: unpacked_bytes };
        add(&self.0.unpacked_bytes, n, unpacked_bytes, exceeded)?;
        let unpacked = self.0.unpacked_bytes.get();
        match &self.0.packed_bytes {
            Some(packed) if unpacked > RATIO_FROM_BYTES && unpacked / ratio > packed.get() => {
                Err(io::Error::other(Exceeded::Ratio { allowed: ratio }))
            }
            _ => Ok(()),
        }
    }
}

fn add(count: &Cell<u64>, n: u64, allowed: u64, exceeded: Exceeded) -> io::Result<()> {
    let sum = count.get().saturating_add(n);
    count.set(sum);
    if sum > allowed { Err(io::Error::other(exceeded)) } else { Ok(()) }
}

/// Reads the rest of the data of an entry. Fails if that is a part of a sparse file: its holes may have any size, and no bound counts
/// them.
pub fn drain(entry: &mut Entry<'_, impl Read>) -> io::Result<()> {
    if entry.header().entry_type() != tar::EntryType::GNUSparse {
        return io::copy(entry, &mut io::sink()).map(drop);
    }
    match entry.read(&mut [0])? {
        0 => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it has a sparse file; create it without --sparse",
        )),
    }
}

/// A plain tar, whose reader gets an error beyond the bounds.
#[derive(Debug)]
pub struct BoundedTar<R> {
    tar: R,
    bounds: Bounds,
}

impl<R> BoundedTar<R> {
    /// `packed_bytes` are those that the compressed archive has had, for the ratio.
    pub fn new(tar: R, packed_bytes: Option<ByteCount>, limits: TarLimits) -> Self {
        let counts = Counts {
            limits,
            packed_bytes,
            header_bytes_left: Cell::new(u64::MAX),
            unpacked_bytes: Cell::new(0),
            entries: Cell::new(0),
            name_bytes: Cell::new(0),
        };
        Self { tar, bounds: Bounds(Rc::new(counts)) }
    }

    /// The counts of this reader, which go on to change with it.
    pub fn bounds(&self) -> Bounds {
        self.bounds.clone()
    }

    /// The reader below, without the bounds.
    pub fn into_inner(self) -> R {
        self.tar
    }
}

impl<R: Read> Read for BoundedTar<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.tar.read(buffer)?;
        self.bounds.count_read(n as u64)?;
        Ok(n)
    }
}

impl<R: Seek> Seek for BoundedTar<R> {
    /// What is skipped counts as read neither by the headers nor by the unpacked bytes.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.tar.seek(to)
    }
}
