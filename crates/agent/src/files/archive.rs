//! Reads the entries of an uploaded tar archive one by one. Called by `unpack`.
//!
//! The archive is hostile: memory for it is bounded, and malformed input gives an error with its position.

use guest_proto::FileErrorKind;

use super::failure::{FileFailure, shown};
use super::header::{self, BLOCK, Header};
use super::upload::Upload;

/// Most bytes of the records before an entry, such as long names.
const MAX_META: u64 = 64 * 1024;

/// Record types of sparse files.
const SPARSE: &[u8] = b"GNU.sparse.";

/// A tar archive in an upload.
pub struct Archive<'a> {
    upload: &'a mut Upload,
    /// Unread bytes of the current entry, and the padding after them.
    left: u64,
    padding: usize,
    entries: u64,
}

impl<'a> Archive<'a> {
    pub fn new(upload: &'a mut Upload) -> Self {
        Self { upload, left: 0, padding: 0, entries: 0 }
    }

    /// The next entry; `None` at the end, when the whole upload was read.
    pub fn next(&mut self) -> Result<Option<Header>, FileFailure> {
        let mut name = None;
        let mut link = None;
        let mut size = None;
        let mut modified = None;
        let mut is_sparse = false;
        loop {
            self.skip_rest()?;
            let Some(mut header) = self.header()? else { return Ok(None) };
            (self.left, self.padding) = (header.size, header::padding(header.size));
            match header.kind {
                b'L' => name = Some(until_nul(self.meta(&header)?)),
                b'K' => link = Some(until_nul(self.meta(&header)?)),
                b'x' => {
                    let meta = self.meta(&header)?;
                    let records = header::records(&meta).ok_or_else(|| self.malformed("its pax records"))?;
                    for (key, value) in records {
                        match key {
                            b"path" => name = Some(value.to_vec()),
                            b"linkpath" => link = Some(value.to_vec()),
                            b"size" => {
                                size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                            }
                            b"mtime" => modified = time(value),
                            // The content is then a map of the holes, followed by the data.
                            _ if key.starts_with(SPARSE) => is_sparse = true,
                            _ => {}
                        }
                    }
                }
                b'g' => drop(self.meta(&header)?),
                _ => {
                    header.name = name.unwrap_or(header.name);
                    if is_sparse {
                        // The type flag of the older form of sparse files.
                        header.kind = b'S';
                    }
                    header.link = link.unwrap_or(header.link);
                    (header.modified_s, header.modified_ns) = modified.unwrap_or((header.modified_s, 0));
                    header.size = size.unwrap_or(header.size);
                    if header.size > i64::MAX as u64 {
                        return Err(self.malformed("a size"));
                    }
                    (self.left, self.padding) = (header.size, header::padding(header.size));
                    self.entries += 1;
                    return Ok(Some(header));
                }
            }
        }
    }

    /// Available bytes of the entry's content, at least one; empty at its end.
    pub fn content(&mut self) -> Result<&[u8], FileFailure> {
        if self.left == 0 {
            return Ok(&[]);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let entries = self.entries;
        let available = self.upload.next()?;
        if available.is_empty() {
            return Err(truncated(entries));
        }
        let available = &available[..available.len().min(most)];
        Ok(available)
    }

    /// Marks this much of the content as read.
    pub fn used(&mut self, bytes: usize) {
        self.upload.used(bytes);
        self.left = self.left.saturating_sub(bytes as u64);
    }

    fn meta(&mut self, header: &Header) -> Result<Vec<u8>, FileFailure> {
        if header.size > MAX_META {
            return Err(self.malformed("an entry's name or pax records of more than 64 KiB"));
        }
        let mut meta = Vec::new();
        loop {
            let available = self.content()?;
            let n = available.len();
            if n == 0 {
                return Ok(meta);
            }
            meta.extend_from_slice(available);
            self.used(n);
        }
    }

    fn skip_rest(&mut self) -> Result<(), FileFailure> {
        loop {
            let n = self.content()?.len();
            if n == 0 {
                break;
            }
            self.used(n);
        }
        while self.padding > 0 {
            let n = self.upload.next()?.len().min(self.padding);
            if n == 0 {
                return Err(truncated(self.entries));
            }
            self.upload.used(n);
            self.padding -= n;
        }
        Ok(())
    }

    /// The next header; `None` at the end of the archive.
    fn header(&mut self) -> Result<Option<Header>, FileFailure> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            let available = self.upload.next()?;
            let n = available.len().min(BLOCK - filled);
            if n == 0 {
                // Some writers omit the zeroes at the end.
                return if filled == 0 && self.entries > 0 { Ok(None) } else { Err(truncated(self.entries)) };
            }
            block[filled..filled + n].copy_from_slice(&available[..n]);
            self.upload.used(n);
            filled += n;
        }
        if block == [0; BLOCK] {
            self.drain()?;
            return Ok(None);
        }
        match header::decode(&block) {
            Some(header) => Ok(Some(header)),
            None if self.entries == 0 && block.starts_with(&[0x1f, 0x8b]) => Err(FileFailure::new(
                FileErrorKind::Invalid,
                "the archive is compressed with gzip; send it as plain tar",
            )),
            None => Err(self.malformed("a header")),
        }
    }

    /// Reads and drops the bytes after the end of the archive, so that the sender is not blocked.
    fn drain(&mut self) -> Result<(), FileFailure> {
        loop {
            let n = self.upload.next()?.len();
            if n == 0 {
                return Ok(());
            }
            self.upload.used(n);
        }
    }

    fn malformed(&self, what: &str) -> FileFailure {
        let message = format!(
            "the body is not a valid tar archive: {what} cannot be read, after {} entries",
            self.entries
        );
        FileFailure::new(FileErrorKind::Invalid, message)
    }
}

fn truncated(entries: u64) -> FileFailure {
    FileFailure::new(FileErrorKind::Invalid, format!("the tar archive is truncated after {entries} entries"))
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    text.truncate(end);
    text
}

/// Seconds and nanoseconds of `-1.5`.
fn time(text: &[u8]) -> Option<(i64, i64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = digits.fold(0, |sum, digit| sum * 10 + i64::from(digit.wrapping_sub(b'0') % 10));
    // Before 1970 the fraction of a record counts backwards, and the kernel's nanoseconds forwards.
    if whole.starts_with('-') && nanoseconds > 0 {
        return Some((seconds.checked_sub(1)?, 1_000_000_000 - nanoseconds));
    }
    Some((seconds, nanoseconds))
}

/// The components of an entry's name below the target directory. `..` is refused.
pub fn parts(name: &[u8]) -> Result<Vec<&[u8]>, FileFailure> {
    let parts: Vec<&[u8]> =
        name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.iter().any(|part| *part == b".." || part.contains(&0)) {
        let message = format!("the archive's entry '{}' is outside the directory", shown(name));
        return Err(FileFailure::new(FileErrorKind::Invalid, message));
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_records_are_those_of_the_kernel() {
        for (text, at) in [
            ("5", Some((5, 0))),
            ("5.25", Some((5, 250_000_000))),
            ("5.1234567899", Some((5, 123_456_789))),
            ("-1", Some((-1, 0))),
            ("-0.5", Some((-1, 500_000_000))),
            ("-1.5", Some((-2, 500_000_000))),
            ("-1.000000001", Some((-2, 999_999_999))),
            ("", None),
            ("x", None),
            (".5", None),
            ("99999999999999999999", None),
            ("-9223372036854775808.5", None),
        ] {
            assert_eq!(time(text.as_bytes()), at, "{text}");
        }
        assert_eq!(time(b"\xff"), None);
    }

    #[test]
    fn a_time_that_is_written_comes_back() {
        for seconds in [-1_000_000_000, -2, -1] {
            for nanoseconds in [0, 1, 500_000_000, 999_999_999] {
                let header =
                    Header { kind: b'0', modified_s: seconds, modified_ns: nanoseconds, ..Header::default() };
                let mut encoded = Vec::new();
                header::encode(&header, &mut encoded);
                // The header of the records, and the records.
                let records = header::records(&encoded[BLOCK..2 * BLOCK]).unwrap();
                let (_, written) = records.iter().find(|(key, _)| *key == b"mtime").unwrap();
                assert_eq!(time(written), Some((seconds, nanoseconds)));
            }
        }
    }

    #[test]
    fn an_entry_stays_below_the_directory() {
        let parts_of = |name: &'static [u8]| parts(name).map_err(|_| "refused");
        assert_eq!(parts_of(b"a/./b//c/"), Ok(vec![&b"a"[..], b"b", b"c"]));
        assert_eq!(parts_of(b"/etc/passwd"), Ok(vec![&b"etc"[..], b"passwd"]));
        assert_eq!(parts_of(b"./"), Ok(vec![]));
        assert_eq!(parts_of(b"a/..b/..."), Ok(vec![&b"a"[..], b"..b", b"..."]));
        for outside in [&b".."[..], b"../a", b"a/../b", b"a/..", b"a\0b"] {
            assert!(parts(outside).is_err(), "{outside:?}");
        }
    }

    #[test]
    fn a_name_ends_at_its_nul() {
        assert_eq!(until_nul(b"a/b\0rest".to_vec()), b"a/b");
        assert_eq!((until_nul(b"a".to_vec()), until_nul(b"\0".to_vec())), (b"a".to_vec(), Vec::new()));
    }
}
