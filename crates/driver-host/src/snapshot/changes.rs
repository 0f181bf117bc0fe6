//! Tracks which parts of a block device are written, by the kernel's tracepoint of completed requests.
//!
//! A copy of a disk in use needs it: what was written since the first pass is all that has to be copied while the sandbox is frozen.
//! Completions, not submissions: a request that is read before its completion is reported afterwards, and copied again. Each
//! processor has a ring of events; if one overflows the tracker says so, and the whole disk is copied.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::loopdev::DeviceNumber;

const EVENT: &str = "events/block/block_rq_complete";
const SECTOR: u64 = 512;
/// Changes are noted in pieces of this size, so that many small writes are few ranges.
const PIECE: u64 = 64 << 10;
/// Memory of all rings together.
const RING_BYTES: usize = 8 << 20;
const PAGE: usize = 4096;

// From the kernel's <linux/perf_event.h>.
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_SAMPLE_RAW: u64 = 1 << 10;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
const PERF_EVENT_IOC_SET_FILTER: libc::Ioctl = 0x4008_2406;
const PERF_FORMAT_LOST: u64 = 1 << 4;
const PERF_RECORD_SAMPLE: u32 = 9;
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

/// The first version of the kernel's `struct perf_event_attr`.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

/// What changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Changes {
    /// Disjoint, in ascending order.
    Ranges(Vec<Range<u64>>),
    /// Events were lost.
    Unknown,
}

/// A tracker of one device, from its creation on.
pub struct ChangeTracker {
    rings: Vec<Ring>,
    fields: Fields,
    found: PieceSet,
    is_incomplete: bool,
    processors: Vec<i32>,
}

impl ChangeTracker {
    pub fn start(device: DeviceNumber) -> io::Result<Self> {
        let processors = processors()?;
        let pages = ring_pages(processors.len());
        Self::with_rings(device, processors, pages)
    }

    pub(crate) fn with_rings(device: DeviceNumber, processors: Vec<i32>, pages: usize) -> io::Result<Self> {
        let tracing = open_tracing()?;
        let number = read_at(&tracing, &format!("{EVENT}/id"))?;
        let number = number.trim().parse().map_err(io::Error::other)?;
        let fields = Fields::parse(&read_at(&tracing, &format!("{EVENT}/format"))?)
            .ok_or_else(|| io::Error::other("the kernel's event has an unknown format"))?;
        let filter = std::ffi::CString::new(format!("dev == {}", kernel_number(device)))?;
        let rings = processors.iter().map(|cpu| Ring::open(*cpu, number, &filter, pages));
        let rings = rings.collect::<io::Result<Vec<_>>>()?;
        Ok(Self { rings, fields, found: PieceSet::default(), is_incomplete: false, processors })
    }

    /// Empties the rings. To be called often enough that they do not overflow.
    pub fn poll(&mut self) {
        let Self { rings, fields, found, is_incomplete, .. } = self;
        for ring in rings {
            ring.read(|kind, body| {
                if kind == PERF_RECORD_SAMPLE
                    && let Some(range) = fields.written(body)
                {
                    found.insert(range);
                }
            });
            *is_incomplete |= ring.has_lost();
        }
    }

    /// What changed since the last call.
    pub fn take(&mut self) -> Changes {
        self.poll();
        let found = std::mem::take(&mut self.found);
        // A processor that came online has no ring.
        let has_all = processors().is_ok_and(|online| online.iter().all(|cpu| self.processors.contains(cpu)));
        if std::mem::take(&mut self.is_incomplete) || !has_all {
            Changes::Unknown
        } else {
            Changes::Ranges(found.ranges())
        }
    }
}

/// The directory of the kernel's tracing, whether it is mounted or not.
fn open_tracing() -> io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

fn read_at(dir: &OwnedFd, path: &str) -> io::Result<String> {
    let file = openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    io::read_to_string(File::from(file))
}

pub(crate) fn processors() -> io::Result<Vec<i32>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online")?;
    parse_list(text.trim()).ok_or_else(|| io::Error::other("cannot read the list of processors"))
}

/// A list such as `0-3,8`.
fn parse_list(text: &str) -> Option<Vec<i32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse().ok()?..=last.parse::<i32>().ok()?);
    }
    Some(all)
}

/// A power of two, as the kernel requires.
fn ring_pages(processors: usize) -> usize {
    let pages = RING_BYTES / PAGE / processors.max(1);
    (1 << pages.max(1).ilog2()).clamp(16, 512)
}

/// A device number as events have it.
fn kernel_number(device: DeviceNumber) -> u32 {
    device.major << 20 | device.minor
}

/// The places of the fields of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fields {
    sector: usize,
    sectors: usize,
    operation: usize,
}

impl Fields {
    fn parse(format: &str) -> Option<Self> {
        let place = |name: &str| {
            let line = format.lines().find(|line| {
                let declared = line.trim().strip_prefix("field:").and_then(|rest| rest.split(';').next());
                let last = declared.and_then(|declared| declared.split_whitespace().next_back());
                last.is_some_and(|last| last.split('[').next() == Some(name))
            })?;
            line.split("offset:").nth(1)?.split(';').next()?.parse().ok()
        };
        Some(Self { sector: place("sector")?, sectors: place("nr_sector")?, operation: place("rwbs")? })
    }

    /// The bytes that the request of a sample has changed.
    fn written(self, sample: &[u8]) -> Option<Range<u64>> {
        // The size of the raw data comes first.
        let raw = sample.get(4..)?;
        let word = |at: usize| raw.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
        let sectors = raw.get(self.sectors..self.sectors + 4)?.try_into().ok().map(u32::from_ne_bytes)?;
        let operation = raw.get(self.operation..)?;
        let is_read = operation.iter().take_while(|byte| **byte != 0).any(|byte| *byte == b'R');
        let start = word(self.sector)?.checked_mul(SECTOR)?;
        let end = start.checked_add(u64::from(sectors) * SECTOR)?;
        (!is_read && sectors > 0).then_some(start..end)
    }
}

/// Ranges of a device, in whole pieces.
#[derive(Debug, Default)]
struct PieceSet {
    /// First piece and the one after the last.
    runs: BTreeMap<u64, u64>,
}

impl PieceSet {
    fn insert(&mut self, bytes: Range<u64>) {
        let (mut start, mut end) = (bytes.start / PIECE, bytes.end.div_ceil(PIECE));
        // Those that touch the new run become part of it.
        while let Some((&first, &last)) =
            self.runs.range(..=end).next_back().filter(|(_, last)| **last >= start)
        {
            self.runs.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.runs.insert(start, end);
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        self.runs.iter().map(|(start, end)| start * PIECE..end * PIECE).collect()
    }
}

/// The events of one processor.
struct Ring {
    event: File,
    /// Events that did not fit, up to the last look.
    lost: u64,
    memory: *mut u8,
    length: usize,
    tail: u64,
}

// SAFETY: the mapping belongs to this value alone and is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    fn open(cpu: i32, event: u64, filter: &std::ffi::CStr, pages: usize) -> io::Result<Self> {
        let size = u32::try_from(size_of::<EventAttributes>()).map_err(io::Error::other)?;
        let attributes = EventAttributes {
            kind: PERF_TYPE_TRACEPOINT,
            size,
            config: event,
            sample_period: 1,
            sample_type: PERF_SAMPLE_RAW,
            read_format: PERF_FORMAT_LOST,
            ..EventAttributes::default()
        };
        // SAFETY: the kernel reads `size` bytes from a live struct of that layout.
        let opened = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC)
        };
        let fd = i32::try_from(opened).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        let event = unsafe { File::from_raw_fd(fd) };
        // SAFETY: the kernel reads a C string and keeps no pointer to it.
        if unsafe { libc::ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter.as_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let length = (pages + 1) * PAGE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let memory = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, event.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { event, lost: 0, memory: memory.cast(), length, tail: 0 })
    }

    /// Passes each new record to `visit`, with its type and its content.
    fn read(&mut self, mut visit: impl FnMut(u32, &[u8])) {
        let head = self.counter(DATA_HEAD).load(Ordering::Acquire);
        let mut record = Vec::new();
        while self.tail < head {
            let header = self.bytes::<8>(self.tail);
            let kind = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]);
            let size = u64::from(u16::from_ne_bytes([header[6], header[7]]));
            if size < 8 {
                break;
            }
            record.clear();
            record.extend((self.tail + 8..self.tail + size).map(|at| self.bytes::<1>(at)[0]));
            visit(kind, &record);
            self.tail += size;
        }
        // The kernel may overwrite what was read.
        fence(Ordering::SeqCst);
        self.counter(DATA_TAIL).store(self.tail, Ordering::Release);
    }

    /// Whether events did not fit since the last call. A count that cannot be read is no proof that none did.
    fn has_lost(&mut self) -> bool {
        // The number of events, and the number of lost ones.
        let mut counts = [0; 16];
        if self.event.read_exact(&mut counts).is_err() {
            return true;
        }
        let [.., a, b, c, d, e, f, g, h] = counts;
        let lost = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        std::mem::replace(&mut self.lost, lost) != lost
    }

    fn counter(&self, at: usize) -> &AtomicU64 {
        // SAFETY: both counters are aligned words in the first page of the mapping, which the kernel accesses atomically.
        unsafe { &*self.memory.add(at).cast::<AtomicU64>() }
    }

    /// Bytes of the ring at a position that grows without bound.
    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let ring = self.length - PAGE;
        std::array::from_fn(|index| {
            let place = usize::try_from((at + index as u64) % ring as u64).unwrap_or(0);
            // SAFETY: the place is within the data pages, which follow the first one.
            unsafe { self.memory.add(PAGE + place).read_volatile() }
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps what `open` has mapped; nothing refers to it any more.
        unsafe { libc::munmap(self.memory.cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::loopdev;

    #[test]
    fn ranges_merge() {
        let mut set = PieceSet::default();
        for range in [4 * PIECE..4 * PIECE + 1, 0..1, PIECE..2 * PIECE, 4 * PIECE + 5..5 * PIECE + 5] {
            set.insert(range);
        }
        assert_eq!(set.ranges(), [0..2 * PIECE, 4 * PIECE..6 * PIECE]);
        set.insert(PIECE..5 * PIECE);
        assert_eq!(set.ranges(), vec![0..6 * PIECE]);
    }

    #[test]
    fn the_format_gives_the_places_of_fields() {
        let format = "\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\tfield:sector_t sector;\toffset:16;\tsize:8;\tsigned:0;\n\
                      \tfield:unsigned int nr_sector;\toffset:24;\tsize:4;\tsigned:0;\n\tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";
        assert_eq!(Fields::parse(format), Some(Fields { sector: 16, sectors: 24, operation: 34 }));
        assert_eq!(Fields::parse("field:int other;\toffset:8;"), None);
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(ring_pages(2), 512);
        assert_eq!(ring_pages(300), 16);
    }

    #[test]
    fn writes_to_a_device_are_found_and_reads_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let backing = dir.path().join("disk");
        File::create(&backing).unwrap().set_len(16 << 20).unwrap();
        let device = loopdev::attach(&backing).unwrap();
        let open = File::options().read(true).write(true).open(&device.path).unwrap();
        let mut tracker = ChangeTracker::start(device.number).unwrap();
        assert_eq!(tracker.take(), Changes::Ranges(Vec::new()));
        open.write_all_at(&[1; 8192], 3 << 20).unwrap();
        open.write_all_at(&[1; 4096], 9 << 20).unwrap();
        open.sync_all().unwrap();
        let expected = vec![3 << 20..(3 << 20) + PIECE, 9 << 20..(9 << 20) + PIECE];
        assert_eq!(tracker.take(), Changes::Ranges(expected));
        let other = File::open(&device.path).unwrap();
        rustix::fs::fadvise(&other, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        other.read_exact_at(&mut [0; 4096], 12 << 20).unwrap();
        assert_eq!(tracker.take(), Changes::Ranges(Vec::new()));
    }

    #[test]
    fn lost_events_are_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let backing = dir.path().join("disk");
        File::create(&backing).unwrap().set_len(16 << 20).unwrap();
        let device = loopdev::attach(&backing).unwrap();
        let open = File::options().write(true).open(&device.path).unwrap();
        let mut tracker = ChangeTracker::with_rings(device.number, processors().unwrap(), 1).unwrap();
        for piece in 0..1024 {
            open.write_all_at(&[2; 4096], piece * 16_384).unwrap();
        }
        open.sync_all().unwrap();
        assert_eq!(tracker.take(), Changes::Unknown);
        assert_eq!(tracker.take(), Changes::Ranges(Vec::new()));
    }
}
