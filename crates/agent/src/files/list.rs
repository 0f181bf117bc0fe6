//! Lists a page of a directory, in memory that does not grow with the directory.
//!
//! A directory of at most [`MAX_SORTED`] entries is listed by name; a larger one in the order of the file system,
//! which is stable while the directory does not change.

use guest_proto::FileReply;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::failure::FileFailure;
use super::reply::ReplyWriter;
use super::stat;

const MAX_SORTED: usize = 10_000;

/// Sends the entries of a directory from an offset on.
pub fn list(path: &[u8], offset: u64, limit: u32, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(FileFailure::with(path))?;
    let mut dir = Dir::new(fd).map_err(FileFailure::with(path))?;
    let mut names = Vec::new();
    let mut total: u64 = 0;
    while let Some(name) = next_name(&mut dir).map_err(FileFailure::with(path))? {
        total += 1;
        if names.len() < MAX_SORTED {
            names.push(name);
        }
        reply.step()?;
    }
    let skip = usize::try_from(offset).unwrap_or(usize::MAX);
    if total <= MAX_SORTED as u64 {
        names.sort_unstable();
        names.drain(..skip.min(names.len()));
        names.truncate(limit as usize);
    } else {
        names.clear();
        dir.rewind();
        let mut passed: u64 = 0;
        while names.len() < limit as usize
            && let Some(name) = next_name(&mut dir).map_err(FileFailure::with(path))?
        {
            passed += 1;
            if passed > offset {
                names.push(name);
            }
            reply.step()?;
        }
    }
    for name in names {
        entry(&dir, path, &name, reply)?;
    }
    reply.send(&FileReply::Listed { total })
}

/// The next name except `.` and `..`.
pub fn next_name(dir: &mut Dir) -> Result<Option<Vec<u8>>, Errno> {
    loop {
        match dir.read() {
            Some(Ok(entry)) => {
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    return Ok(Some(name.to_vec()));
                }
            }
            Some(Err(Errno::INTR)) => {}
            Some(Err(errno)) => return Err(errno),
            None => return Ok(None),
        }
    }
}

fn entry(dir: &Dir, path: &[u8], name: &[u8], reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let fd = dir.fd().map_err(FileFailure::with(path))?;
    let found = match rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => found,
        // The entry was deleted, or may not be read.
        Err(_) => return Ok(()),
    };
    let target = stat::target_of(fd, name, &found);
    reply.send(&FileReply::Entry { name, stat: stat::to_wire(&found, target.as_deref()) })
}
