//! A bound on the heads of an archive's entries. Whoever reads them keeps long names, and whoever wrote them may be hostile: between two
//! entries no more than a head is read, whatever it says of itself.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read};
use std::rc::Rc;

/// Longest name, target of a link, and pax records of one entry, each; far more than a path can have.
const LONGEST: u64 = 64 << 10;
/// The three with their headers, that of the entry, and what fills up the content before it.
const HEAD: u64 = 3 * (LONGEST + 1024) + 1024;

/// How much may be read now.
#[derive(Clone)]
pub struct Allowance(Rc<Cell<u64>>);

/// Reads no more than is allowed.
pub struct Bounded<R> {
    from: R,
    allowance: Allowance,
}

impl Allowance {
    /// Of contents any number.
    pub fn new() -> Self {
        Self(Rc::new(Cell::new(u64::MAX)))
    }

    /// Has something read one head, with so much content to pass over before it. Answers how long the head was too.
    pub fn head<T>(&self, before: u64, read: impl FnOnce() -> T) -> (T, u64) {
        self.0.set(HEAD.saturating_add(before));
        let read = read();
        let left = self.0.replace(u64::MAX);
        (read, HEAD.saturating_sub(left))
    }
}

impl<R> Bounded<R> {
    pub fn new(from: R, allowance: &Allowance) -> Self {
        Self { from, allowance: allowance.clone() }
    }
}

impl<R: Read> Read for Bounded<R> {
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
