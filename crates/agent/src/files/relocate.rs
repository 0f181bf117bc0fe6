//! Moves a file, a link or a directory. Within one file system this is one rename. Between two, and for directories
//! of the lower layer of an overlay, the source is copied to a temporary name beside the target, the copy is renamed,
//! and the source is deleted. Before the target is replaced, a rename of the source tests that it can be deleted.

use guest_proto::FileErrorKind;
use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use super::copy;
use super::delete::{self, Depth};
use super::dirs;
use super::failure::{FileFailure, shown};
use super::reply::ReplyWriter;
use super::temporary::{self, TargetChange};

/// What happens to a target that exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    Kept,
    Replaced,
}

/// Renames a file or directory, or copies and deletes it if the file systems differ.
pub fn relocate(
    from: &[u8],
    to: &[u8],
    existing: Existing,
    reply: &mut ReplyWriter,
) -> Result<(), FileFailure> {
    rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(FileFailure::with(from))?;
    dirs::split_or_fail(from)?;
    let (above, name) = dirs::split_or_fail(to)?;
    match rename(from, to, existing) {
        Ok(()) => return Ok(()),
        Err(Errno::XDEV) => {}
        Err(Errno::NOENT) => {
            let message = format!("the parent directory of '{}' does not exist", shown(to));
            return Err(FileFailure::new(FileErrorKind::NotFound, message));
        }
        Err(Errno::INVAL) => return Err(FileFailure::of(Errno::INVAL, to)),
        Err(errno) => return Err(FileFailure::of(errno, to)),
    }
    // To a watch a move creates its target, also if it replaces one, as within a file system.
    let copy_path = temporary::name_for(name, TargetChange::Created).map_err(FileFailure::with(to))?;
    let copy_path = [above, &copy_path].concat();
    let commit = || rename(&copy_path, to, existing).map_err(FileFailure::with(to));
    let moved = copy::copy(from, &copy_path, reply).and_then(|()| replace_and_delete(from, commit, reply));
    if moved.is_err() {
        // The failure is reported; leftovers have a temporary name.
        let _ = delete::delete(&copy_path, Depth::Tree, reply);
    }
    moved
}

/// Renames the copy to the target and deletes the source. If one of them is not possible, the source stays.
fn replace_and_delete(
    from: &[u8],
    commit: impl FnOnce() -> Result<(), FileFailure>,
    reply: &mut ReplyWriter,
) -> Result<(), FileFailure> {
    let (above, name) = dirs::split_or_fail(from)?;
    let renamed = temporary::name_for(name, TargetChange::Created).map_err(FileFailure::with(from))?;
    let renamed = [above, &renamed].concat();
    match rustix::fs::rename(from, &*renamed) {
        Ok(()) => {}
        // A directory of the lower layer: it cannot be renamed, and can be deleted.
        Err(Errno::XDEV) => {
            commit()?;
            return delete::delete(from, Depth::Tree, reply).map(drop);
        }
        // The source exists, so its directory refuses new names, like those of `/proc`.
        Err(Errno::NOENT) => return Err(FileFailure::of(Errno::PERM, from)),
        Err(errno) => return Err(FileFailure::of(errno, from)),
    }
    let commit = commit();
    let done = match commit {
        Ok(()) => delete::delete(&renamed, Depth::Tree, reply).map(drop),
        Err(failure) => Err(failure),
    };
    if done.is_err() {
        // Restore the name of the source, even if it is deleted in part.
        let _ = rename(&renamed, from, Existing::Kept);
    }
    done
}

fn rename(from: &[u8], to: &[u8], existing: Existing) -> Result<(), Errno> {
    if existing == Existing::Replaced {
        return rustix::fs::rename(from, to);
    }
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Kernels and file systems without `RENAME_NOREPLACE`.
        Err(Errno::INVAL | Errno::NOSYS) => match rustix::fs::statat(CWD, to, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::rename(from, to),
            Err(errno) => Err(errno),
        },
        done => done,
    }
}
