//! Ends programs that hold too many open files of `/proc` that lxcfs serves.
//!
//! For each open file lxcfs keeps a buffer of up to 1.7 KB. Its process belongs to no sandbox, so the descriptors of one sandbox alone
//! could take gigabytes.

mod count;

use std::io;

use api::SandboxId;

use super::Hoarders;
use super::lxcfs_watch::Need;

/// Open files of one sandbox.
const FILES_MAX: usize = 4096;

/// Kills the commands of sandboxes that have too many files of lxcfs open. Their agents go on. Returns which.
pub fn end_hoarders(hoarders: &Hoarders) -> io::Result<Vec<SandboxId>> {
    let Some(dir) = &hoarders.settings.lxcfs else { return Ok(Vec::new()) };
    let ended =
        hoarders.lxcfs.count_if_large(dir, |need| hoarders.end_all(|id| is_hoarder(hoarders, id, need)));
    ended.unwrap_or_else(|| Ok(Vec::new()))
}

/// Whether a sandbox is one that [`end_hoarders`] would end if it looked now.
pub fn is_hoarder_now(hoarders: &Hoarders, id: &SandboxId) -> bool {
    let need = hoarders.settings.lxcfs.as_ref().and_then(|dir| hoarders.lxcfs.need(dir));
    need.is_some_and(|need| is_hoarder(hoarders, id, need))
}

fn is_hoarder(hoarders: &Hoarders, id: &SandboxId, need: Need) -> bool {
    let processes = hoarders.cgroups.processes(id.as_str()).unwrap_or_default();
    // A socket that waits in a message of another socket may itself have messages with files, which cannot be counted.
    let in_messages = match need {
        Need::Normal => 1,
        Need::Urgent => FILES_MAX,
    };
    count::open_files(&processes, in_messages, FILES_MAX) > FILES_MAX
}
