//! Moves a file, a link or a whole directory to another name. Within one file system that is one step; between two, and where the
//! file system cannot rename a directory of its lower layer, it is copied beside its place, put there in one step, and then
//! deleted where it was. Before anything is replaced, a rename of the original tests that it can be deleted.

use guest_proto::FileErrorKind;
use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use super::copy;
use super::delete;
use super::dirs;
use super::failure::{FileFailure, shown};
use super::reply::ReplyWriter;
use super::temporary;

pub fn relocate(from: &[u8], to: &[u8], overwrite: bool, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(FileFailure::with(from))?;
    dirs::split_or_fail(from)?;
    let (above, name) = dirs::split_or_fail(to)?;
    match rename(from, to, overwrite) {
        Ok(()) => return Ok(()),
        Err(Errno::XDEV) => {}
        Err(Errno::NOENT) => {
            let message = format!("there is no directory that '{}' could be in", shown(to));
            return Err(FileFailure::new(FileErrorKind::NotFound, message));
        }
        Err(Errno::INVAL) => return Err(FileFailure::of(Errno::INVAL, to)),
        Err(errno) => return Err(FileFailure::of(errno, to)),
    }
    let beside = temporary::name_for(name).map_err(FileFailure::with(to))?;
    let beside = [above, &beside].concat();
    let put = || rename(&beside, to, overwrite).map_err(FileFailure::with(to));
    let moved = copy::copy(from, &beside, reply).and_then(|()| taken(from, put, reply));
    if moved.is_err() {
        // The failure is reported; leftovers have a temporary name.
        let _ = delete::delete(&beside, true, reply);
    }
    moved
}

/// Puts the copy in place and deletes the original, or changes nothing.
fn taken(
    from: &[u8],
    put: impl FnOnce() -> Result<(), FileFailure>,
    reply: &mut ReplyWriter,
) -> Result<(), FileFailure> {
    let (above, name) = dirs::split_or_fail(from)?;
    let aside = [above, &temporary::name_for(name).map_err(FileFailure::with(from))?].concat();
    match rustix::fs::rename(from, &*aside) {
        Ok(()) => {}
        // A directory of the lower layer: it cannot be renamed, and can be deleted.
        Err(Errno::XDEV) => {
            put()?;
            return delete::delete(from, true, reply).map(drop);
        }
        // The source exists: the directory takes no names, like those of `/proc`.
        Err(Errno::NOENT) => return Err(FileFailure::of(Errno::PERM, from)),
        Err(errno) => return Err(FileFailure::of(errno, from)),
    }
    let put = put();
    let done = match put {
        Ok(()) => delete::delete(&aside, true, reply).map(drop),
        Err(failure) => Err(failure),
    };
    if done.is_err() {
        // What is left of it is found where it was.
        let _ = rename(&aside, from, false);
    }
    done
}

fn rename(from: &[u8], to: &[u8], overwrite: bool) -> Result<(), Errno> {
    if overwrite {
        return rustix::fs::rename(from, to);
    }
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Kernels and file systems that cannot do it in one step.
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::rename(from, to),
            Err(errno) => Err(errno),
        },
        done => done,
    }
}
