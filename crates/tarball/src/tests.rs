use std::io::{self, Write};

use allocation_counter::measure;
use proptest::prelude::*;
use tar::EntryType;

use crate::*;

const NO_LIMIT: TarLimits = TarLimits::HEADERS;

fn header(kind: EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_path("name").unwrap();
    header.set_cksum();
    header
}

/// An archive with one entry of each kind, with this much data.
fn archive(entries: &[(EntryType, usize)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (kind, size) in entries {
        archive.append(&header(*kind, *size as u64), &vec![b'a'; *size][..]).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Reads all entries, and returns their number.
fn read(content: &[u8], limits: TarLimits) -> io::Result<usize> {
    let packed = Packed::open(content, SMALL_WINDOW_LOG)?;
    let packed_bytes = packed.packed_bytes();
    let bounded = BoundedTar::new(packed, Some(packed_bytes), limits);
    let bounds = bounded.bounds();
    let mut archive = tar::Archive::new(bounded);
    let mut entries = archive.entries()?;
    let mut number = 0;
    while let Some(mut entry) = bounds.next(&mut entries)? {
        drain(&mut entry)?;
        number += 1;
    }
    Ok(number)
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

fn zstd(content: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn entries_of_each_compression_are_read() {
    let plain =
        archive(&[(EntryType::Regular, 5000), (EntryType::GNULongName, 300), (EntryType::Regular, 0)]);
    for packed in [plain.clone(), gzip(&plain), zstd(&plain, 20)] {
        assert_eq!(read(&packed, NO_LIMIT).unwrap(), 2);
    }
    for other in [&b"BZh91AY"[..], &[0xfd, b'7', b'z', b'X', b'Z', 0]] {
        let error = read(other, NO_LIMIT).unwrap_err();
        assert!(error.to_string().contains("bzip2 or xz"), "{error}");
    }
}

#[test]
fn each_bound_names_what_was_exceeded() {
    let files = archive(&[(EntryType::Regular, 1000); 10]);
    let of = |content: &[u8], limits: TarLimits| Exceeded::of(&read(content, limits).unwrap_err()).unwrap();
    for (limits, exceeded) in [
        (TarLimits { entries: 9, ..NO_LIMIT }, Exceeded::Entries { allowed: 9 }),
        (TarLimits { name_bytes: 39, ..NO_LIMIT }, Exceeded::NameBytes { allowed: 39 }),
        (TarLimits { unpacked_bytes: 5000, ..NO_LIMIT }, Exceeded::UnpackedBytes { allowed: 5000 }),
    ] {
        assert_eq!(of(&files, limits), exceeded);
        assert_eq!(of(&gzip(&files), limits), exceeded);
    }
    assert_eq!(read(&files, TarLimits { entries: 10, name_bytes: 40, ..NO_LIMIT }).unwrap(), 10);
    let zeros = zstd(&[archive(&[(EntryType::Regular, 0)]), vec![0; 300 << 20]].concat(), 20);
    let mut all = BoundedTar::new(Packed::open(&zeros[..], SMALL_WINDOW_LOG).unwrap(), None, NO_LIMIT);
    assert!(io::copy(&mut all, &mut io::sink()).unwrap() > 300 << 20);
    let packed = Packed::open(&zeros[..], SMALL_WINDOW_LOG).unwrap();
    let count = packed.packed_bytes();
    let mut bounded = BoundedTar::new(packed, Some(count), TarLimits { ratio: 1000, ..NO_LIMIT });
    let error = io::copy(&mut bounded, &mut io::sink()).unwrap_err();
    assert_eq!(Exceeded::of(&error), Some(Exceeded::Ratio { allowed: 1000 }));
}

#[test]
fn headers_are_bounded_before_they_are_in_memory() {
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let content = archive(&[(kind, 64 << 20), (EntryType::Regular, 0)]);
        let mut error = None;
        let used = measure(|| error = read(&content, NO_LIMIT).err());
        assert_eq!(Exceeded::of(&error.unwrap()), Some(Exceeded::HeaderBytes { allowed: HEADER_BYTES }));
        assert!(used.bytes_max <= 4 * HEADER_BYTES, "{kind:?} takes {} bytes", used.bytes_max);
        // A header that is allowed, and long data, which is none.
        let content = archive(&[(kind, 1 << 19), (EntryType::Regular, 8 << 20)]);
        assert_eq!(read(&content, NO_LIMIT).unwrap(), 1);
    }
}

#[test]
fn a_zstd_frame_with_a_large_window_is_refused() {
    let content = archive(&[(EntryType::Regular, 200 << 20)]);
    assert_eq!(read(&zstd(&content, SMALL_WINDOW_LOG), NO_LIMIT).unwrap(), 1);
    let large = zstd(&content, SMALL_WINDOW_LOG + 1);
    let error = read(&large, NO_LIMIT).unwrap_err();
    assert!(LargeWindow::is_in(&error) && error.to_string().contains("16777216 bytes"), "{error}");
    // One segment, whose window is its content.
    let whole = zstd::bulk::compress(&vec![0; 300], 1).unwrap();
    assert!(Packed::open(&whole[..], 10).is_ok());
    assert!(LargeWindow::is_in(&Packed::open(&whole[..], 8).err().unwrap()));
    // In a frame that is not the first one, zstd itself refuses it.
    let hidden = [zstd(&content[..512], 20), large].concat();
    let error = read(&hidden, NO_LIMIT).unwrap_err();
    assert!(!LargeWindow::is_in(&error), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever is in an archive, its reader neither panics nor uses much memory.
    #[test]
    fn any_bytes_take_bounded_memory(
        kinds in prop::collection::vec((0_u8..128, 0_usize..3000), 0..6),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..12),
        compression in 0..3,
    ) {
        let kinds: Vec<_> = kinds.into_iter().map(|(kind, size)| (EntryType::new(kind), size)).collect();
        let mut content = archive(&kinds);
        for (at, byte) in changes {
            let at = at % content.len();
            content[at] = byte;
        }
        let packed = match compression {
            0 => content,
            1 => gzip(&content),
            _ => zstd(&content, 20),
        };
        let limits = TarLimits { unpacked_bytes: 1 << 20, entries: 100, name_bytes: 10_000, ratio: 1000 };
        let used = measure(|| drop(read(&packed, limits)));
        prop_assert!(used.bytes_max <= 4 << 20, "{} bytes", used.bytes_max);
    }
}
