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
