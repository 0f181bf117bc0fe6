pub mod bombs;

use std::io::Write;

use allocation_counter::measure;

use super::*;

/// What the daemon may use for an upload or an archive of `ADD`.
const MAX_MEMORY: u64 = 32_000_000;

fn read(file: &tempfile::NamedTempFile) -> Result<Context, BuilderError> {
    Context::read(file.path().to_owned(), Hashes::Compute, &CancellationToken::new())
}

fn written(content: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(content).unwrap();
    file
}

/// Writes an archive: names that end in `/` are directories.
pub fn archive(files: &[(&str, &str)]) -> tempfile::NamedTempFile {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_mtime(1);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o750);
        }
        header.set_size(content.len() as u64);
        archive.append_data(&mut header, name, content.as_bytes()).unwrap();
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&archive.into_inner().unwrap()).unwrap();
    file
}

#[test]
fn entries_are_found_by_clean_paths() {
    let file = archive(&[("./src/main.rs", "fn main"), ("README", "hello"), ("empty/", "")]);
    let context = read(&file).unwrap();
    let paths: Vec<_> = context.index.below("").map(|rank| context.index.path(rank)).collect();
    assert_eq!(paths, ["README", "empty", "src", "src/main.rs"]);
    assert_eq!(context.text("./src/../README", 100).unwrap(), "hello");
    assert_eq!(context.get("empty").unwrap().mode, 0o750);
    assert_eq!(context.index.below("src").count(), 1);
    assert_eq!(context.index.below("").count(), 4);
    for (path, part) in [("src", "no file"), ("none", "no file"), ("../x", "outside")] {
        assert!(context.text(path, 100).unwrap_err().to_string().contains(part), "{path}");
    }
    assert!(context.text("README", 4).unwrap_err().to_string().contains("at most 4"));
}

#[test]
fn other_files_are_refused() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; 2048]).unwrap();
    let error = read(&file).unwrap_err();
    assert!(error.to_string().contains("not a valid tar archive"), "{error}");
    // Cut within a file.
    let whole = archive(&[("big", &"x".repeat(4096))]);
    whole.as_file().set_len(2048).unwrap();
    assert!(read(&whole).is_err());
}

#[test]
fn hard_links_are_files_with_the_same_content() {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(2);
    archive.append_data(&mut header, "a", &b"xy"[..]).unwrap();
    let mut link = tar::Header::new_ustar();
    link.set_entry_type(tar::EntryType::Link);
    link.set_size(0);
    archive.append_link(&mut link, "b", "a").unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&archive.into_inner().unwrap()).unwrap();
    let context = read(&file).unwrap();
    assert_eq!(context.get("a").unwrap().kind, context.get("b").unwrap().kind);
}

#[test]
fn bombs_are_refused_within_the_memory_of_an_upload() {
    let mut most = 0;
    for (name, content, reason) in [
        ("long name", bombs::long_header(tar::EntryType::GNULongName, 64 << 20), "headers of one entry"),
        ("long link", bombs::long_header(tar::EntryType::GNULongLink, 64 << 20), "headers of one entry"),
        ("records", bombs::long_header(tar::EntryType::XHeader, 64 << 20), "headers of one entry"),
        ("sparse map", bombs::sparse_map(2_000_000), "headers of one entry"),
        ("deep directories", bombs::deep_directories(200), "more than 200000 entries"),
        ("many entries", bombs::files(200_001, |at| format!("{at}")), "more than 200000 entries"),
        (
            "many names",
            bombs::files(4_000, |at| format!("{}/{at}", "a".repeat(4000))),
            "names with more than",
        ),
        ("a name", bombs::files(1, |_| "a".repeat(5000)), "a path with 5000 bytes"),
    ] {
        let file = written(&content);
        let mut result = None;
        let used = measure(|| result = Some(read(&file)));
        let error = result.unwrap().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(reason), "{name}: {error}");
        assert!(used.bytes_max <= MAX_MEMORY, "{name} takes {} bytes", used.bytes_max);
        most = most.max(used.bytes_max);
    }
    println!("at most {most} bytes");
}

#[test]
fn the_largest_index_fits_into_the_memory_of_an_upload() {
    let content = bombs::largest_index();
    let file = written(&content);
    let mut result = None;
    let used = measure(|| result = Some(read(&file).map(|context| context.index.below("").count())));
    assert_eq!(result.unwrap().unwrap(), 200_000);
    assert!(used.bytes_max <= MAX_MEMORY, "{} bytes", used.bytes_max);
    println!("{} bytes", used.bytes_max);
}

#[test]
fn reading_ends_when_nobody_waits() {
    let file = archive(&[("file", "content")]);
    let stopped = CancellationToken::new();
    stopped.cancel();
    let read = Context::read(file.path().to_owned(), Hashes::Compute, &stopped);
    assert!(matches!(read, Err(BuilderError::Stopping)));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]
    /// Bytes of an archive that are changed anywhere cost no more than the archive may.
    #[test]
    fn damaged_archives_take_bounded_memory(
        changes in proptest::collection::vec((0_usize..10_000, proptest::prelude::any::<u8>()), 0..20),
        kind in 0_u8..128,
    ) {
        let mut content = bombs::long_header(tar::EntryType::new(kind), 600);
        content.extend(bombs::files(3, |at| format!("dir/{at}")));
        for (at, byte) in changes {
            let at = at % content.len();
            content[at] = byte;
        }
        let file = written(&content);
        let used = measure(|| drop(read(&file)));
        proptest::prop_assert!(used.bytes_max <= 8_000_000, "{} bytes", used.bytes_max);
    }
}
