//! Reads `/proc` for the tree kill: pids, cgroup namespaces, parents. Called by `tree`.
//!
//! A process that cannot be read counts as ended. Without `/proc` no process is found, and the tree kill reaches only the
//! command's process group.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use rustix::process::Pid;

/// Identity of a cgroup namespace: its inode number.
pub type Namespace = u64;

/// Most processes read in one round: the kernel's own limit, as a bound for a broken `/proc`.
const MAX_PROCESSES: usize = 65_536;

/// Identity of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub session: i32,
}

/// The `/proc` that was mounted when the agent started; later mounts over it have no effect.
pub struct Proc {
    dir: Option<OwnedFd>,
    own: Option<Namespace>,
}

impl Proc {
    pub fn new() -> Self {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open("/proc", flags, Mode::empty()).ok();
        let mut proc = Self { dir, own: None };
        proc.own = proc.namespace_of(rustix::process::getpid().as_raw_nonzero().get());
        proc
    }

    /// The agent's own namespace.
    pub fn own(&self) -> Option<Namespace> {
        self.own
    }

    /// The pids of all processes but the agent.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids = Vec::new();
        let Some(dir) = &self.dir else { return pids };
        if rustix::fs::seek(dir, SeekFrom::Start(0)).is_err() {
            return pids;
        }
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 8 * 1024];
        let mut entries = RawDir::new(dir, &mut buffer);
        while let Some(Ok(entry)) = entries.next() {
            let name = entry.file_name().to_bytes();
            let pid = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
            pids.extend(pid.filter(|pid: &i32| *pid != me));
            if pids.len() == MAX_PROCESSES {
                break;
            }
        }
        pids
    }

    /// Opens and identifies the cgroup namespace of a process.
    pub fn namespace(&self, pid: Pid) -> Option<(OwnedFd, Namespace)> {
        let mut path = PathBuffer::new(pid.as_raw_nonzero().get(), "/ns/cgroup");
        let fd = rustix::fs::openat(
            self.dir.as_ref()?,
            path.c_str(),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let fd = fd.ok()?;
        let namespace = rustix::fs::fstat(&fd).ok()?.st_ino;
        Some((fd, namespace))
    }

    /// The cgroup namespace of a process; `None` for one that is dead or dying, and on kernels without them.
    pub fn namespace_of(&self, pid: i32) -> Option<Namespace> {
        let mut path = PathBuffer::new(pid, "/ns/cgroup");
        let mut buffer = [MaybeUninit::<u8>::uninit(); 64];
        // The link reads "cgroup:[NUMBER]".
        let (link, _) = rustix::fs::readlinkat_raw(self.dir.as_ref()?, path.c_str(), &mut buffer).ok()?;
        let number = link.strip_prefix(b"cgroup:[")?.strip_suffix(b"]")?;
        std::str::from_utf8(number).ok()?.parse().ok()
    }

    /// The identity of a process that is neither dead nor dying.
    pub fn process(&self, pid: i32) -> Option<Process> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 512];
        let stat = self.read(pid, "/stat", &mut buffer)?;
        // "PID (NAME) STATE PARENT GROUP SESSION …"; the name may contain anything, so parse from the last bracket.
        let name_end = stat.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace();
        if matches!(fields.next()?, "Z" | "X" | "x") {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        Some(Process { pid, parent, session })
    }

    /// Whether the first part of a process's environment has this entry.
    pub fn has_mark(&self, pid: i32, mark: &[u8]) -> bool {
        let mut path = PathBuffer::new(pid, "/environ");
        let Some(dir) = &self.dir else { return false };
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(dir, path.c_str(), flags, Mode::empty()) else { return false };
        let mut bytes = Vec::with_capacity(32 * 1024);
        while bytes.len() < 1024 * 1024 {
            if bytes.len() == bytes.capacity() {
                bytes.reserve(bytes.len());
            }
            if !matches!(rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)), Ok(1..)) {
                break;
            }
        }
        bytes.split(|byte| *byte == 0).any(|entry| entry == mark)
    }

    fn read<'a>(&self, pid: i32, file: &str, buffer: &'a mut [MaybeUninit<u8>]) -> Option<&'a [u8]> {
        let mut path = PathBuffer::new(pid, file);
        let dir = self.dir.as_ref()?.as_fd();
        let file =
            rustix::fs::openat(dir, path.c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        rustix::io::read(&file, buffer).ok().map(|(got, _)| &*got)
    }
}

/// "PID/…" without an allocation, because a round uses thousands of them.
struct PathBuffer {
    bytes: [u8; 32],
}

impl PathBuffer {
    fn new(pid: i32, rest: &str) -> Self {
        use std::io::Write;
        let mut bytes = [0; 32];
        // The longest is "2147483647/ns/cgroup"; the last byte stays 0 whatever is written.
        let _ = write!(&mut bytes[..31], "{pid}{rest}");
        Self { bytes }
    }

    fn c_str(&mut self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}
