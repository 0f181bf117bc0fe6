//! Moves a file, a link or a whole directory to another name. Within one file system that is one step; between two, and where the
//! file system cannot rename a directory of its lower layer, it is copied beside its place, put there in one step, and then
//! deleted where it was. That it can be deleted is made sure before anything is replaced: it is renamed where it is.

use guest_proto::FileErrorKind;
use rustix::fs::{AtFlags, CWD, RenameFlags};
use rustix::io::Errno;

use super::copy;
use super::delete;
use super::dirs;
use super::fault::{Fault, shown};
use super::say::Say;
use super::temporary;

pub fn relocate(from: &[u8], to: &[u8], overwrite: bool, say: &mut Say) -> Result<(), Fault> {
    rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(Fault::with(from))?;
    dirs::split_or_fault(from)?;
    let (above, name) = dirs::split_or_fault(to)?;
    match rename(from, to, overwrite) {
        Ok(()) => return Ok(()),
        Err(Errno::XDEV) => {}
        Err(Errno::NOENT) => {
            let message = format!("there is no directory that '{}' could be in", shown(to));
            return Err(Fault::new(FileErrorKind::NotFound, message));
        }
        Err(Errno::INVAL) => return Err(Fault::of(Errno::INVAL, to)),
        Err(errno) => return Err(Fault::of(errno, to)),
    }
    let beside = temporary::name_for(name).map_err(Fault::with(to))?;
    let beside = [above, &beside].concat();
    let put = || rename(&beside, to, overwrite).map_err(Fault::with(to));
    let moved = copy::copy(from, &beside, say).and_then(|()| taken(from, put, say));
    if moved.is_err() {
        // What failed is told; what is left of it, if anything, has a name that says what it was.
        let _ = delete::delete(&beside, true, say);
    }
    moved
}

/// Puts the copy in its place and deletes what it was made of; or nothing has changed.
fn taken(from: &[u8], put: impl FnOnce() -> Result<(), Fault>, say: &mut Say) -> Result<(), Fault> {
    let (above, name) = dirs::split_or_fault(from)?;
    let aside = [above, &temporary::name_for(name).map_err(Fault::with(from))?].concat();
    match rustix::fs::rename(from, &*aside) {
        Ok(()) => {}
        // A directory of the lower layer: it cannot be renamed, and can be deleted.
        Err(Errno::XDEV) => {
            put()?;
            return delete::delete(from, true, say).map(drop);
        }
        // It was there: the directory is one that takes no names, such as those of `/proc`.
        Err(Errno::NOENT) => return Err(Fault::of(Errno::PERM, from)),
        Err(errno) => return Err(Fault::of(errno, from)),
    }
    let put = put();
    let done = match put {
        Ok(()) => delete::delete(&aside, true, say).map(drop),
        Err(fault) => Err(fault),
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
