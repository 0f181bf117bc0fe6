use std::time::{Duration, Instant};

use allocation_counter::measure;
use dockerfile::CopySource;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::context::Hashes;
use crate::context::tests::bombs;

/// What the daemon may use for an archive of `ADD`, with the index of its context.
const MAX_MEMORY: u64 = 32_000_000;
/// What zstd takes for the largest window, outside of Rust's allocator: the window, two blocks of 128 KiB, and its tables.
const ZSTD_MEMORY: u64 = (1 << SMALL_WINDOW_LOG) + (512 << 10);

fn context(archive: &[u8], name: &str) -> (Context, tempfile::NamedTempFile) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let mut outer = tar::Builder::new(Vec::new());
    let mut header = header(tar::EntryType::Regular, 0o644, 0);
    header.set_size(archive.len() as u64);
    outer.append_data(&mut header, name, archive).unwrap();
    file.write_all(&outer.into_inner().unwrap()).unwrap();
    let read = Context::read(file.path().to_owned(), Hashes::Skip, &CancellationToken::new());
    (read.unwrap(), file)
}

fn add(name: &str) -> Copy {
    let sources = vec![CopySource::Path(name.to_owned())];
    Copy { from: None, sources, destination: "/app/".to_owned(), owner: None, mode: None, extracts: true }
}

/// Sends an archive of `ADD` to a receiver that reads everything. Returns the bytes, the error, and the memory of the sender.
fn sent(archive: &[u8], name: &str, limits: TarLimits) -> (u64, String, u64) {
    let (context, _file) = context(archive, name);
    let (sender, mut pieces) = mpsc::channel::<Result<Bytes, BuildError>>(PIECES);
    let receiver = std::thread::spawn(move || {
        let mut bytes = 0;
        while let Some(Ok(piece)) = pieces.blocking_recv() {
            bytes += piece.len() as u64;
        }
        bytes
    });
    let mut result = None;
    let used = measure(|| result = Some(write(&context, &add(name), None, &sender, limits)));
    drop(sender);
    let error = match result.unwrap() {
        Ok(()) => String::new(),
        Err(WriteError::Failed(error)) => error.message,
        Err(WriteError::Io(error)) => format!("io: {error}"),
    };
    (receiver.join().unwrap(), error, used.bytes_max)
}

fn zstd_of(content: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(window_log).unwrap();
    encoder.long_distance_matching(true).unwrap();
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn archives_of_each_compression_are_unpacked() {
    let plain = bombs::files(3, |at| format!("dir/{at}"));
    let packed = [plain.clone(), bombs::gzip(&plain), zstd_of(&plain, 23)];
    for (archive, name) in packed.iter().zip(["a.tar", "a.tar.gz", "a.tar.zst"]) {
        let (bytes, error, _) = sent(archive, name, UNPACKED);
        assert_eq!((error.as_str(), bytes), ("", plain.len() as u64), "{name}");
    }
}

/// Entries that nothing is sent of, with names that `name` makes: what is sent is freed by another thread, which is not measured.
fn unsent(number: usize, bytes: u64, name: impl Fn(usize) -> String) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for at in 0..number {
        let mut header = header(tar::EntryType::Continuous, 0o644, 0);
        header.set_size(bytes);
        archive.append_data(&mut header, name(at), io::repeat(0).take(bytes)).unwrap();
    }
    archive.into_inner().unwrap()
}

#[test]
fn bombs_are_refused_within_the_memory_of_an_archive() {
    let zeros = unsent(1, 300 << 20, |_| "zeros".to_owned());
    let names = unsent(3000, 0, |at| format!("{}/{at}", "n".repeat(90)));
    let long_name = bombs::long_header(tar::EntryType::GNULongName, 64 << 20);
    let bytes = TarLimits { unpacked_bytes: 100 << 20, ..UNPACKED };
    let few = |entries, name_bytes| TarLimits { entries, name_bytes, ..UNPACKED };
    for (what, archive, file, limits, reason) in [
        ("long name", long_name.clone(), "a.tar", UNPACKED, "headers of one entry"),
        ("compressed name", bombs::gzip(&long_name), "a.tar.gz", UNPACKED, "headers of one entry"),
        (
            "records",
            bombs::long_header(tar::EntryType::XHeader, 64 << 20),
            "a.tar",
            UNPACKED,
            "headers of one",
        ),
        ("sparse map", bombs::sparse_map(2_000_000), "a.tar", UNPACKED, "headers of one entry"),
        ("sparse file", bombs::sparse_file(1 << 62), "a.tar", UNPACKED, "create it without --sparse"),
        (
            "many names",
            bombs::gzip(&names),
            "a.tar.gz",
            few(u64::MAX, 200_000),
            "more than 200000 bytes together",
        ),
        ("many entries", bombs::gzip(&names), "a.tar.gz", few(2999, u64::MAX), "more than 2999 entries"),
        ("gzip of zeros", bombs::gzip(&zeros), "a.tar.gz", bytes, "unpacks to more than 104857600 bytes"),
        ("zstd of zeros", zstd_of(&zeros, 23), "a.tar.zst", UNPACKED, "1000 times its size"),
        (
            "large window",
            zstd_of(&zeros, 27),
            "a.tar.zst",
            UNPACKED,
            "a window of 134217728 bytes; allowed: 8388608",
        ),
    ] {
        let begin = Instant::now();
        let (_, error, memory) = sent(&archive, file, limits);
        assert!(error.contains(reason), "{what}: {error}");
        let zstd = if file.ends_with("zst") { ZSTD_MEMORY } else { 0 };
        assert!(memory + zstd <= MAX_MEMORY, "{what} takes {memory} bytes");
        println!("{what}: {memory} bytes, {:?}", begin.elapsed());
    }
}

#[test]
fn an_archive_beside_the_largest_index_takes_less_than_32_mb() {
    // The largest window and the longest name, whose archive is the first of the files that the `ADD` selects.
    let long_name = bombs::long_header(tar::EntryType::GNULongName, (1 << 20) - 4096);
    let mut whole = unsent(1, 9 << 20, |_| "zeros".to_owned());
    // Without the blocks that end the archive.
    whole.truncate(whole.len() - 1024);
    whole.extend(long_name);
    let packed = zstd_of(&whole, SMALL_WINDOW_LOG);
    let mut outer = tar::Builder::new(Vec::new());
    let mut empty = header(tar::EntryType::Regular, 0o644, 0);
    for at in 0..99_999 {
        outer.append_data(&mut empty, bombs::long_path(at), io::empty()).unwrap();
    }
    let mut last = header(tar::EntryType::Regular, 0o644, 0);
    last.set_size(packed.len() as u64);
    outer.append_data(&mut last, "z/a.tar.zst", &packed[..]).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&outer.into_inner().unwrap()).unwrap();
    let mut context = Context::default();
    let read = measure(|| {
        let read = Context::read(file.path().to_owned(), Hashes::Compute, &CancellationToken::new());
        context = read.unwrap().without_hashes();
    });
    assert_eq!(context.index.below("").count(), 200_000);
    let index = u64::try_from(read.bytes_current).unwrap();
    let (sender, _pieces) = mpsc::channel::<Result<Bytes, BuildError>>(PIECES);
    let mut ended = Ok(());
    let used = measure(|| ended = write(&context, &add("*/*"), None, &sender, UNPACKED)).bytes_max;
    let Err(WriteError::Failed(error)) = ended else { panic!("the archive was accepted") };
    assert!(error.message.contains("a path with 1044480 bytes"), "{error}");
    println!("{} bytes to read, {index} for the index, {used} for the archive", read.bytes_max);
    assert!(read.bytes_max <= MAX_MEMORY, "{} bytes", read.bytes_max);
    assert!(index + used + ZSTD_MEMORY <= MAX_MEMORY, "{index} + {used} + {ZSTD_MEMORY} bytes");
}

#[tokio::test]
async fn the_sender_ends_when_nobody_receives() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = header(tar::EntryType::Symlink, 0o644, 0);
    // The data of a link are read and not sent.
    header.set_size(2 << 30);
    header.set_link_name("target").unwrap();
    header.set_path("link").unwrap();
    header.set_cksum();
    archive.append(&header, io::empty()).unwrap();
    let mut content = archive.into_inner().unwrap();
    content.truncate(512);
    // 2 GiB of zeros are behind the header.
    content.resize(64 << 20, 0);
    let packed = bombs::gzip(&content);
    let (context, _file) = context(&packed, "a.tar.gz");
    let begin = Instant::now();
    let mut pieces = send(Arc::new(context), add("a.tar.gz"), None);
    pieces.close();
    while pieces.recv().await.is_some() {}
    assert!(begin.elapsed() < Duration::from_secs(60));
}
