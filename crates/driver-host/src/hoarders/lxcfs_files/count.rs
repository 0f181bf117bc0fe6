//! Counts the open files of `/proc` that lxcfs serves.
//!
//! A file stays open as long as a descriptor, a mapping or a message that waits in a Unix socket refers to it. The kernel does not tell
//! which files are in messages, so all of them count. A file that several processes share counts for each of them.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::description::LXCFS_FILES;

/// `kcmp(2)`: compares the tables of descriptors.
const KCMP_FILES: i32 = 2;

/// The files that the processes of a sandbox hold. Counts only a little further than `enough`. A descriptor in a message counts as
/// `in_messages` files.
pub fn open_files(processes: &[i32], in_messages: usize, enough: usize) -> usize {
    let mut count = Count { files: 0, in_messages, enough, sockets: HashSet::new() };
    for pid in processes {
        for thread in threads_with_own_descriptors(*pid) {
            count.add_descriptors(&PathBuf::from(format!("/proc/{pid}/task/{thread}")));
        }
        if !count.is_enough() {
            count.add_mappings(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default());
        }
    }
    count.files
}

struct Count {
    files: usize,
    in_messages: usize,
    enough: usize,
    /// Those whose messages are counted.
    sockets: HashSet<String>,
}

impl Count {
    fn is_enough(&self) -> bool {
        self.files > self.enough
    }

    /// Adds the descriptors of a thread, by its directory in `/proc`.
    fn add_descriptors(&mut self, thread: &Path) {
        // Fails if it has ended.
        let Ok(descriptors) = fs::read_dir(thread.join("fd")) else { return };
        for descriptor in descriptors.flatten() {
            if self.is_enough() {
                return;
            }
            let Some(target) = fs::read_link(descriptor.path())
                .ok()
                .and_then(|path| path.into_os_string().into_string().ok())
            else {
                continue;
            };
            if is_served_by_lxcfs(&target) {
                self.files += 1;
            } else if target.starts_with("socket:") && self.sockets.insert(target) {
                let info = fs::read_to_string(thread.join("fdinfo").join(descriptor.file_name()));
                self.files += self.in_messages * files_in_messages(&info.unwrap_or_default());
            }
        }
    }

    /// Adds the mappings of a process, from its `maps`.
    fn add_mappings(&mut self, maps: &str) {
        let paths = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        self.files += paths.filter(|path| is_served_by_lxcfs(path)).count();
    }
}

fn is_served_by_lxcfs(path: &str) -> bool {
    path.strip_prefix("/proc/").is_some_and(|file| LXCFS_FILES.contains(&file))
}

/// The number of descriptors in the messages that a socket has received, from its `fdinfo`.
fn files_in_messages(info: &str) -> usize {
    let number = info.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// The process itself, and those of its threads that do not share its descriptors.
fn threads_with_own_descriptors(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let threads = threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    threads.filter(|thread| *thread == pid || !share_descriptors(pid, *thread)).collect()
}

/// A kernel that cannot tell counts as if they do.
fn share_descriptors(one: i32, other: i32) -> bool {
    // SAFETY: compares two processes by number and accesses no memory.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_FILES, 0, 0) <= 0 }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn descriptors_and_mappings_of_served_files_count() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = open_files(&[own], 1, 1000);
        // The kernel's own files have the same names.
        let held: Vec<File> = (0..50).map(|_| File::open("/proc/meminfo").unwrap()).collect();
        // Files and messages of other tests may be gone now.
        assert!(open_files(&[own], 1, 1000) >= before + 40);
        assert_eq!(open_files(&[own], 1, 2), 3);
        drop(held);
        let mut count = Count { files: 0, in_messages: 1, enough: 10, sockets: HashSet::new() };
        count.add_mappings(
            "7f00-7f01 r--p 00000000 00:2f 12    /proc/uptime\n7f02-7f03 r--p 00000000 00:2f 12    /proc/self/maps\n\
             7f04-7f05 rw-p 00000000 00:00 0\n",
        );
        assert_eq!(count.files, 1);
    }

    #[test]
    fn descriptors_in_messages_count() {
        assert_eq!(files_in_messages("pos:\t0\nflags:\t02\nmnt_id:\t9\nino:\t77\nscm_fds: 253\n"), 253);
        assert_eq!(files_in_messages("pos:\t0\n"), 0);
    }

    /// What is in the messages of a socket that itself waits in a message cannot be seen.
    #[test]
    fn a_descriptor_in_a_message_may_count_as_many() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let passed = [std::os::fd::AsFd::as_fd(&one)];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut messages = SendAncillaryBuffer::new(&mut space);
        assert!(messages.push(SendAncillaryMessage::ScmRights(&passed)));
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(open_files(&[own], 1000, 1_000_000) < 1000);
        sendmsg(&one, &[std::io::IoSlice::new(b"x")], &mut messages, SendFlags::empty()).unwrap();
        assert!(open_files(&[own], 1000, 1_000_000) >= 1000, "{other:?}");
    }

    #[test]
    fn threads_share_the_descriptors_of_their_process() {
        let own = i32::try_from(std::process::id()).unwrap();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || wait.recv());
        assert_eq!(threads_with_own_descriptors(own), [own]);
        drop(end);
        assert!(thread.join().unwrap().is_err());
    }
}
