//! Watches a directory with inotify, on request with all directories below it, and sends an event per change.
//!
//! ```text
//! inotify queue ──(drain)──> Changed, Overflow         request of the host ──> drain, then Synced
//! ```
//!
//! The kernel queues an event before the call that caused it returns. So after `Synced` the host has seen the events of all
//! operations that ended before its request. If the host does not read, this process blocks, the kernel's bounded queue
//! overflows, and the host is told.
//!
//! A new directory may get entries before it is watched: after the watch is set it is listed, and what is there is reported as
//! created (and as written if it has content). Its entries that are in the queue as well are reported once.
//!
//! Temporary names of other file operations are neither reported nor followed; `entry_events` has the rule.

use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use guest_proto::{FileErrorKind, FileKind, FileReply, WatchEventKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::entry_events::EntryEvents;
use super::failure::{FileFailure, shown};
use super::list::next_name;
use super::reply::ReplyWriter;
use super::stat;
use super::temporary;
use super::upload::Upload;
use super::watched_dirs::WatchedDirs;

/// Most directories of one watch.
const MAX_WATCHED: usize = 8192;
/// Interval of progress replies; shorter than the host's timeout.
const WORKING_EVERY: Duration = Duration::from_secs(15);

/// Watches until the upload ends or the directory is deleted.
pub fn watch(
    path: &[u8],
    recursive: bool,
    requests: &mut Upload,
    reply: &mut ReplyWriter,
) -> Result<(), FileFailure> {
    let inotify =
        inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|errno| no_watch(errno, path))?;
    let mut watch = Watch {
        inotify,
        root: path.to_vec(),
        recursive,
        dirs: WatchedDirs::default(),
        listed: HashSet::new(),
        entry_events: EntryEvents::default(),
        is_over: false,
        reply,
    };
    watch.begin()?;
    watch.reply.send(&FileReply::Watching)?;
    watch.reply.flush()?;
    watch.run(requests)
}

struct Watch<'a> {
    inotify: OwnedFd,
    root: Vec<u8>,
    recursive: bool,
    dirs: WatchedDirs,
    /// Entries of new directories that were reported from a list; their events may still be in the queue.
    listed: HashSet<(i32, Vec<u8>)>,
    entry_events: EntryEvents,
    /// The directory itself was deleted.
    is_over: bool,
    reply: &'a mut ReplyWriter,
}

/// An event, copied from the kernel's buffer.
struct Change {
    number: i32,
    flags: ReadFlags,
    /// Of a rename, the same in both halves.
    cookie: u32,
    name: Option<Vec<u8>>,
}

/// Whether entries of a directory that becomes watched are reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    Entries,
    Nothing,
}

impl Watch<'_> {
    fn begin(&mut self) -> Result<(), FileFailure> {
        let mask = mask() | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let number = inotify::add_watch(&self.inotify, &*self.root, mask)
            .map_err(|errno| no_watch(errno, &self.root))?;
        self.dirs.add(number, Vec::new());
        if self.recursive && !self.follow_below(number, Vec::new(), Report::Nothing)? {
            let message = format!("'{}' has more than {MAX_WATCHED} directories", shown(&self.root));
            return Err(FileFailure::new(FileErrorKind::Invalid, message));
        }
        Ok(())
    }

    fn run(&mut self, requests: &mut Upload) -> Result<(), FileFailure> {
        let mut reported = Instant::now();
        while !self.is_over {
            let (changed, requested) = self.wait()?;
            if changed {
                self.drain()?;
            }
            if requested {
                loop {
                    let bytes = requests.next()?.len();
                    if bytes == 0 {
                        return Ok(());
                    }
                    requests.used(bytes);
                    self.drain()?;
                    for _ in 0..bytes {
                        self.reply.send(&FileReply::Synced)?;
                    }
                    if !requests.has_buffered() {
                        break;
                    }
                }
            }
            if !changed && !requested && reported.elapsed() >= WORKING_EVERY {
                self.reply.send(&FileReply::Working)?;
                reported = Instant::now();
            }
            self.reply.flush()?;
        }
        Ok(())
    }

    /// Waits for changes or requests, and at most as long as the host waits for a sign of life.
    fn wait(&self) -> Result<(bool, bool), FileFailure> {
        let stdin = rustix::stdio::stdin();
        let mut fds = [PollFd::new(&self.inotify, PollFlags::IN), PollFd::new(&stdin, PollFlags::IN)];
        let seconds = i64::try_from(WORKING_EVERY.as_secs()).unwrap_or(1);
        match rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Err(FileFailure::Unreportable),
        }
        Ok((!fds[0].revents().is_empty(), !fds[1].revents().is_empty()))
    }

    /// Reports everything that is in the queue.
    fn drain(&mut self) -> Result<(), FileFailure> {
        let mut buffer = [const { MaybeUninit::<u8>::uninit() }; 16 * 1024];
        loop {
            let mut changes = Vec::new();
            let mut reader = inotify::Reader::new(&self.inotify, &mut buffer);
            loop {
                match reader.next() {
                    Ok(event) => changes.push(Change {
                        number: event.wd(),
                        flags: event.events(),
                        cookie: event.cookie(),
                        name: event.file_name().map(|name| name.to_bytes().to_vec()),
                    }),
                    Err(Errno::INTR) => continue,
                    Err(Errno::AGAIN) => break,
                    Err(errno) => return Err(FileFailure::of(errno, &self.root)),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
            if changes.is_empty() {
                break;
            }
            for change in changes {
                self.report(change)?;
            }
        }
        self.listed.clear();
        self.unwatch_left();
        Ok(())
    }

    /// Ends the watches of directories that have left the tree.
    fn unwatch_left(&mut self) {
        for number in self.dirs.take_left() {
            // The directory may be deleted already.
            let _ = inotify::remove_watch(&self.inotify, number);
        }
    }

    fn report(&mut self, change: Change) -> Result<(), FileFailure> {
        let Change { number, flags, cookie, name } = change;
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            return self.overflow();
        }
        let Some(dir) = self.dirs.path(number).map(<[u8]>::to_vec) else { return Ok(()) };
        if flags.contains(ReadFlags::IGNORED) {
            self.dirs.remove(number);
            self.is_over |= dir.is_empty();
            return Ok(());
        }
        let Some(name) = name else { return self.report_self(&dir, flags) };
        let path = join(&dir, &name);
        let is_dir = flags.contains(ReadFlags::ISDIR);
        let Some(kind) = self.entry_events.kind_of(&name, flags, cookie) else {
            if flags.contains(ReadFlags::MOVED_TO) && is_dir {
                // A directory got a temporary name, under which it is deleted. The rename was reported; its content is not.
                self.unwatch_left();
            }
            return Ok(());
        };
        if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            if self.listed.remove(&(number, name)) {
                return Ok(());
            }
            self.send(kind, &path)?;
            if is_dir && self.recursive {
                self.follow(path)?;
            }
            return Ok(());
        }
        if flags.contains(ReadFlags::MOVED_FROM) && is_dir {
            self.dirs.moved_away(&path);
        }
        self.send(kind, &path)
    }

    /// An event of a watched directory itself. The parent of a directory below reports it too.
    fn report_self(&mut self, dir: &[u8], flags: ReadFlags) -> Result<(), FileFailure> {
        if !dir.is_empty() {
            return Ok(());
        }
        if flags.contains(ReadFlags::DELETE_SELF) {
            return self.send(WatchEventKind::Remove, dir);
        }
        if flags.contains(ReadFlags::MOVE_SELF) {
            return self.send(WatchEventKind::Rename, dir);
        }
        if flags.contains(ReadFlags::ATTRIB) { self.send(WatchEventKind::Chmod, dir) } else { Ok(()) }
    }

    /// Events were lost, and with them maybe new directories.
    fn overflow(&mut self) -> Result<(), FileFailure> {
        self.reply.send(&FileReply::Overflow)?;
        if self.recursive {
            let mask = mask() | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
            if let Ok(number) = inotify::add_watch(&self.inotify, &*self.root, mask) {
                self.follow_below(number, Vec::new(), Report::Nothing)?;
            }
        }
        Ok(())
    }

    /// Watches a directory that appeared, and all below it.
    fn follow(&mut self, path: Vec<u8>) -> Result<(), FileFailure> {
        match self.add(&path) {
            Some((number, report)) => {
                if !self.follow_below(number, path, report)? {
                    self.reply.send(&FileReply::Overflow)?;
                }
                Ok(())
            }
            None if self.dirs.len() >= MAX_WATCHED => self.reply.send(&FileReply::Overflow),
            // It is gone, or not a directory any more.
            None => Ok(()),
        }
    }

    /// Watches one directory. A known one was moved, and its entries are known too.
    fn add(&mut self, path: &[u8]) -> Option<(i32, Report)> {
        if self.dirs.len() >= MAX_WATCHED {
            return None;
        }
        let full = join(&self.root, path);
        let number = inotify::add_watch(&self.inotify, &*full, mask() | WatchFlags::DONT_FOLLOW).ok()?;
        let is_new = self.dirs.add(number, path.to_vec());
        Some((number, if is_new { Report::Entries } else { Report::Nothing }))
    }

    /// Watches the directories below one. False if there are too many.
    fn follow_below(&mut self, number: i32, path: Vec<u8>, report: Report) -> Result<bool, FileFailure> {
        let mut left = vec![(number, path, report)];
        while let Some((number, dir, report)) = left.pop() {
            self.reply.step()?;
            for name in names(&join(&self.root, &dir)) {
                if temporary::change_of(&name).is_some() {
                    continue;
                }
                let path = join(&dir, &name);
                let full = join(&self.root, &path);
                let Ok(found) = rustix::fs::statat(CWD, &*full, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if report == Report::Entries {
                    self.listed.insert((number, name));
                    self.send(WatchEventKind::Create, &path)?;
                    if stat::kind(&found) == FileKind::File && stat::size(&found) > 0 {
                        self.send(WatchEventKind::Write, &path)?;
                    }
                }
                if stat::kind(&found) == FileKind::Directory {
                    match self.add(&path) {
                        Some((number, is_new)) => {
                            // Nothing is reported of a tree whose top is not new.
                            let report = if report == Report::Entries { is_new } else { Report::Nothing };
                            left.push((number, path, report));
                        }
                        None if self.dirs.len() >= MAX_WATCHED => return Ok(false),
                        None => {}
                    }
                }
            }
        }
        Ok(true)
    }

    fn send(&mut self, kind: WatchEventKind, name: &[u8]) -> Result<(), FileFailure> {
        if name.len() > guest_proto::MAX_PATH {
            return Ok(());
        }
        self.reply.send(&FileReply::Changed { kind, name })
    }
}

fn mask() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MODIFY
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::ONLYDIR
}

fn no_watch(errno: Errno, path: &[u8]) -> FileFailure {
    match errno {
        Errno::NOSPC | Errno::MFILE | Errno::NFILE => FileFailure::new(
            FileErrorKind::Failed,
            "the limit of inotify watches or instances is reached; end other watches",
        ),
        errno => FileFailure::of(errno, path),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let between: &[u8] = if dir.is_empty() || name.is_empty() || dir.ends_with(b"/") { b"" } else { b"/" };
    [dir, between, name].concat()
}

/// The names in a directory; none if it is gone.
fn names(path: &[u8]) -> Vec<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).and_then(Dir::new);
    let mut names = Vec::new();
    if let Ok(mut dir) = dir {
        while let Ok(Some(name)) = next_name(&mut dir) {
            names.push(name);
        }
    }
    names
}
