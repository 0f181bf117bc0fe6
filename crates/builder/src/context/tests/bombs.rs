//! Small inputs that become large for a reader that does not bound them. For tests.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

pub fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

pub fn gzip_of_zeros(bytes: usize) -> Vec<u8> {
    gzip(&vec![0; bytes])
}

fn header(kind: tar::EntryType, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_cksum();
    header
}

/// A header of `kind` whose data are the bytes of a name or of records, which the tar library reads whole; then a file.
pub fn long_header(kind: tar::EntryType, bytes: usize) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.append(&header(kind, bytes as u64), &vec![b'a'; bytes][..]).unwrap();
    archive.append_data(&mut header(tar::EntryType::Regular, 0), "file", &b""[..]).unwrap();
    archive.into_inner().unwrap()
}

/// A sparse file with this many blocks in its map.
pub fn sparse_map(blocks: u64) -> Vec<u8> {
    let mut content = Vec::new();
    let mut first = header(tar::EntryType::GNUSparse, 0);
    let gnu = first.as_gnu_mut().unwrap();
    gnu.set_is_extended(true);
    gnu.set_real_size(0);
    first.set_path("file").unwrap();
    first.set_cksum();
    content.extend_from_slice(first.as_bytes());
    for block in 0..blocks.div_ceil(21) {
        let mut extension = tar::GnuExtSparseHeader::new();
        for sparse in extension.sparse_mut() {
            sparse.set_offset(0);
            sparse.set_length(0);
        }
        extension.set_is_extended(block + 1 < blocks.div_ceil(21));
        content.extend_from_slice(extension.as_bytes());
    }
    content.extend_from_slice(&[0; 1024]);
    content
}

/// A file that is one hole.
pub fn sparse_file(bytes: u64) -> Vec<u8> {
    let mut hole = header(tar::EntryType::GNUSparse, 0);
    let gnu = hole.as_gnu_mut().unwrap();
    gnu.set_real_size(bytes);
    gnu.sparse[0].set_offset(bytes);
    gnu.sparse[0].set_length(0);
    hole.set_path("file").unwrap();
    hole.set_cksum();
    [hole.as_bytes().to_vec(), vec![0; 1024]].concat()
}

/// Empty files with names that `name` makes.
pub fn files(number: usize, name: impl Fn(usize) -> String) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for at in 0..number {
        archive.append_data(&mut header(tar::EntryType::Regular, 0), name(at), &b""[..]).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Of [`largest_index`]. Such names share nothing, and each is in a directory of its own.
pub fn long_path(at: usize) -> String {
    format!("{at:06}{}/file with a name {at:070}", "x".repeat(10))
}

/// All the entries that an index may have, and half of them directories that the archive lacks.
pub fn largest_index() -> Vec<u8> {
    files(100_000, long_path)
}

/// Files at the ends of deep directories, none of which has an entry. Each file has more than 2,000 directories.
pub fn deep_directories(number: usize) -> Vec<u8> {
    files(number, |at| format!("{at}/{}f", "d/".repeat(2040)))
}
