//! Temporary names for new files. Used by `write` and `relocate`.
//!
//! The temporary file is in the directory of its target, so that the last step is a rename. Unless it was renamed it is
//! removed on drop; only a process killed by SIGKILL leaves it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;

/// Limit of the bytes of the target's name in a temporary name.
const NAME_BYTES: usize = 200;

/// A file with a temporary name.
pub struct Temporary<'a> {
    dir: BorrowedFd<'a>,
    pub name: Vec<u8>,
    is_renamed: bool,
}

impl<'a> Temporary<'a> {
    /// A new temporary name for `name`.
    pub fn new(dir: &'a impl AsFd, name: &[u8]) -> Result<Self, Errno> {
        Ok(Self { dir: dir.as_fd(), name: name_for(name)?, is_renamed: false })
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

/// `.NAME.sbx-0123456789abcdef`
pub fn name_for(name: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut random = [0u8; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty())?;
    let number = u64::from_le_bytes(random);
    let mut temporary = vec![b'.'];
    temporary.extend_from_slice(&name[..name.len().min(NAME_BYTES)]);
    temporary.extend_from_slice(format!(".sbx-{number:016x}").as_bytes());
    Ok(temporary)
}
