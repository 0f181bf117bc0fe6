//! Files with holes, in windows of the size of a chunk. A window without data is not stored, and its place stays a hole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::chunk::CHUNK_BYTES;

const WINDOW: u64 = CHUNK_BYTES as u64;
/// A block of the file systems that disks of sandboxes are on.
const BLOCK: usize = 4096;

/// The numbers of the windows that have data.
pub fn windows(file: &File) -> io::Result<Vec<u64>> {
    let mut windows = Vec::new();
    let mut at = 0;
    loop {
        let data = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            // There is no data after this.
            Err(Errno::NXIO) => return Ok(windows),
            Err(error) => return Err(error.into()),
        };
        let hole = seek(file, SeekFrom::Hole(data))?;
        let first = (data / WINDOW).max(windows.last().map_or(0, |last| last + 1));
        windows.extend(first..hole.div_ceil(WINDOW));
        at = hole;
    }
}

/// The content of a window; empty if it is only zeros.
pub fn read(file: &File, window: u64) -> io::Result<Vec<u8>> {
    let start = window * WINDOW;
    let length = file.metadata()?.len().saturating_sub(start).min(WINDOW);
    let mut content = vec![0; usize::try_from(length).unwrap_or(CHUNK_BYTES)];
    file.read_exact_at(&mut content, start)?;
    if is_zero(&content) {
        content.clear();
    }
    Ok(content)
}

/// Writes the content of a window, except for blocks of zeros.
pub fn write(file: &File, window: u64, content: &[u8]) -> io::Result<()> {
    let mut run: Option<usize> = None;
    let mut at = 0;
    for block in content.chunks(BLOCK) {
        match (is_zero(block), run) {
            (true, Some(start)) => {
                write_run(file, window, content, start..at)?;
                run = None;
            }
            (false, None) => run = Some(at),
            _ => {}
        }
        at += block.len();
    }
    run.map_or(Ok(()), |start| write_run(file, window, content, start..at))
}

/// Whether a content of this length at a window is within a file of `bytes`.
pub fn fits(window: u64, length: usize, bytes: u64) -> bool {
    let end = window.checked_mul(WINDOW).and_then(|start| start.checked_add(length as u64));
    end.is_some_and(|end| end <= bytes)
}

fn write_run(file: &File, window: u64, content: &[u8], run: std::ops::Range<usize>) -> io::Result<()> {
    let start = window * WINDOW + run.start as u64;
    file.write_all_at(content.get(run).unwrap_or_default(), start)
}

fn is_zero(bytes: &[u8]) -> bool {
    // The compiler compares many words at once.
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_windows_with_data_are_copied_and_holes_stay() {
        let (from, to) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let length = 5 * WINDOW + 100;
        from.set_len(length).unwrap();
        from.write_all_at(b"first", 10).unwrap();
        // Crosses a border of windows.
        from.write_all_at(&[7; 3 * BLOCK], 3 * WINDOW - BLOCK as u64).unwrap();
        from.write_all_at(b"end", length - 3).unwrap();
        // Written, but zeros.
        from.write_all_at(&[0; BLOCK], WINDOW).unwrap();
        assert_eq!(windows(&from).unwrap(), [0, 1, 2, 3, 5]);
        assert!(read(&from, 1).unwrap().is_empty());
        to.set_len(length).unwrap();
        for window in [0, 2, 3, 5] {
            write(&to, window, &read(&from, window).unwrap()).unwrap();
        }
        let all = |file: &File| {
            let mut content = vec![0; usize::try_from(length).unwrap()];
            file.read_exact_at(&mut content, 0).unwrap();
            content
        };
        assert!(all(&from) == all(&to));
        assert!(to.metadata().unwrap().blocks() <= 6 * 8, "{}", to.metadata().unwrap().blocks());
    }

    #[test]
    fn an_empty_file_has_no_windows() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(windows(&file).unwrap(), [0; 0]);
        file.set_len(10 * WINDOW).unwrap();
        assert_eq!(windows(&file).unwrap(), [0; 0]);
    }
}
