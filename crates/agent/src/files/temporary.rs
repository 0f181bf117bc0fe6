//! Temporary names for new files. Used by `write`, `relocate` and `delete`. A watch does not report them.
//!
//! The temporary file is in the directory of its target, so that the last step is a rename. Unless it was renamed it is
//! removed on drop; only a process killed by SIGKILL leaves it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// Limit of the bytes of the target's name in a temporary name.
const NAME_BYTES: usize = 200;
/// Between the target's name and the digits.
const MARK: &[u8] = b".sbx-";
/// Hexadecimal digits of a `u64`.
const DIGITS: usize = 16;

/// What the rename of a temporary name to its target does to the target. Each file operation is a process of its own, so a watch knows
/// it only from the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetChange {
    Created,
    Replaced,
}

/// A file with a temporary name.
pub struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    pub name: Vec<u8>,
    is_renamed: bool,
}

impl<'a> Temporary<'a> {
    /// A new temporary name for `name`.
    pub fn new(dir: &'a impl AsFd, name: &[u8], change: TargetChange) -> Result<Self, Errno> {
        Ok(Self { dir: dir.as_fd(), name: name_for(name, change)?, is_renamed: false })
    }

    /// Records that the file was renamed to its target.
    pub fn mark_renamed(&mut self) {
        self.is_renamed = true;
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.is_renamed {
            // Fails if the file was not created.
            let _ = rustix::fs::unlinkat(self.dir, self.name.as_slice(), AtFlags::empty());
        }
    }
}

/// `.NAME.sbx-0123456789abcdef`. The number is random except for its lowest bit: odd if the target is replaced.
pub fn name_for(name: &[u8], change: TargetChange) -> Result<Vec<u8>, Errno> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let random = u64::from_le_bytes(random);
    let number = match change {
        TargetChange::Created => random & !1,
        TargetChange::Replaced => random | 1,
    };
    let mut temporary = vec![b'.'];
    temporary.extend_from_slice(&name[..name.len().min(NAME_BYTES)]);
    temporary.extend_from_slice(MARK);
    temporary.extend_from_slice(format!("{number:016x}").as_bytes());
    Ok(temporary)
}

/// What the rename of this name to its target does. `None` if [`name_for`] makes no such name.
pub fn change_of(name: &[u8]) -> Option<TargetChange> {
    let rest = name.strip_prefix(b".")?;
    let (target, ending) = rest.split_at(rest.len().checked_sub(MARK.len() + DIGITS)?);
    let digits = ending.strip_prefix(MARK)?;
    let are_made_here = digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if target.is_empty() || target.len() > NAME_BYTES || !are_made_here {
        return None;
    }
    let last = char::from(*digits.last()?).to_digit(16)?;
    Some(if last & 1 == 1 { TargetChange::Replaced } else { TargetChange::Created })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_name_tells_what_happens_to_its_target() {
        for change in [TargetChange::Created, TargetChange::Replaced] {
            for target in [&b"a"[..], b".hidden", b"\xff", &[b'n'; 255]] {
                // The digits are random.
                for _ in 0..100 {
                    assert_eq!(change_of(&name_for(target, change).unwrap()), Some(change));
                }
            }
        }
    }

    #[test]
    fn similar_names_are_not_temporary() {
        let long = [&b"."[..], &[b'n'; 201], b".sbx-0123456789abcdef"].concat();
        for name in [
            &b""[..],
            b".",
            b"a",
            b".sbx-0123456789abcdef",
            b"..sbx-0123456789abcde",
            b"a.sbx-0123456789abcdef",
            b".a.sbx-0123456789abcde",
            b".a.sbx-0123456789abcdef0",
            b".a.sbx-0123456789abcdeg",
            b".a.sbx-0123456789ABCDEF",
            b".a.sbx-+123456789abcdef",
            b".a.sbx_0123456789abcdef",
            b".a.sbx-0123456789abcdef~",
            &long,
        ] {
            assert_eq!(change_of(name), None, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(change_of(&long[1..]), None);
        assert_eq!(change_of(b".a.sbx-0123456789abcdef"), Some(TargetChange::Replaced));
        assert_eq!(change_of(b".a.sbx-0123456789abcdee"), Some(TargetChange::Created));
    }
}
