//! A limit on the size of archive headers. The tar reader keeps long names in memory, and the archive may be hostile: between two
//! entries at most one bounded header is read.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

/// Limit for each of the name, link target and pax records of an entry; far above the longest path.
const LONGEST: u64 = 64 << 10;
/// All three with their headers, the entry header and the padding of the previous content.
const HEAD: u64 = 3 * (LONGEST + 1024) + 1024;

/// The bytes that may be read now.
#[derive(Clone)]
pub struct Allowance(Rc<Cell<u64>>);

/// A reader with a limit.
pub struct BoundedReader<R> {
    from: R,
    allowance: Allowance,
}

impl Allowance {
    /// Contents are not limited.
    pub fn new() -> Self {
        Self(Rc::new(Cell::new(u64::MAX)))
    }

    /// Runs `read` for one header after skipping the given amount of content. Returns the length of the header too.
    pub fn head<T>(&self, before: u64, read: impl FnOnce() -> T) -> (T, u64) {
        self.0.set(HEAD.saturating_add(before));
        let read = read();
        let left = self.0.replace(u64::MAX);
        (read, HEAD.saturating_sub(left))
    }
}

impl<R> BoundedReader<R> {
    pub fn new(from: R, allowance: &Allowance) -> Self {
        Self { from, allowance: allowance.clone() }
    }
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.allowance.0.get();
        if left == 0 && !into.is_empty() {
            let message = format!("an entry of the archive has names longer than {LONGEST} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, message));
        }
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let got = self.from.read(&mut into[..most])?;
        self.allowance.0.set(left - got as u64);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reader: &mut impl Read, bytes: u64) -> io::Result<u64> {
        io::copy(&mut reader.take(bytes), &mut io::sink())
    }

    #[test]
    fn a_head_is_bounded_and_the_content_before_it_is_not_counted() {
        let allowance = Allowance::new();
        let mut reader = BoundedReader::new(io::repeat(0), &allowance);
        let (whole, length) = allowance.head(0, || read(&mut reader, HEAD));
        assert_eq!((whole.unwrap(), length), (HEAD, HEAD));
        let (whole, length) = allowance.head(10_000, || read(&mut reader, 10_512));
        assert_eq!((whole.unwrap(), length), (10_512, 512));
        let (longer, _) = allowance.head(0, || read(&mut reader, HEAD + 1));
        let error = longer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("names longer than 65536 bytes"), "{error}");
    }

    #[test]
    fn contents_are_not_bounded() {
        let allowance = Allowance::new();
        let mut reader = BoundedReader::new(io::repeat(0), &allowance);
        assert_eq!(read(&mut reader, 2 * HEAD).unwrap(), 2 * HEAD);
        let (_, length) = allowance.head(u64::MAX, || read(&mut reader, 100));
        assert_eq!(length, 0, "all of it is content");
        assert_eq!(read(&mut reader, 2 * HEAD).unwrap(), 2 * HEAD);
    }

    #[test]
    fn an_empty_read_is_no_error_at_the_bound() {
        let allowance = Allowance(Rc::new(Cell::new(0)));
        let mut reader = BoundedReader::new(io::repeat(0), &allowance);
        assert_eq!(reader.read(&mut []).unwrap(), 0);
        assert!(reader.read(&mut [0]).is_err());
    }
}
