//! The only place where the agent blocks: an `epoll` whose entries carry the owner and role of each descriptor.
//!
//! Everything but the signal descriptor is registered once, edge-triggered: the owner of a stream remembers that it is
//! ready until a read or write would block. A serial is never reused, so a late event for a closed stream
//! has no owner.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

/// Most events taken in one turn of the loop.
pub const BATCH: usize = 64;

/// The role of a descriptor for its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Connector,
    Link,
    Signals,
    Stdin,
    Stdout,
    Stderr,
    Socket,
    Drain,
}

const ROLES: [Role; 8] = [
    Role::Connector,
    Role::Link,
    Role::Signals,
    Role::Stdin,
    Role::Stdout,
    Role::Stderr,
    Role::Socket,
    Role::Drain,
];

/// The owner and role of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollToken {
    pub serial: u64,
    pub role: Role,
}

/// An event of a descriptor.
#[derive(Debug, Clone, Copy)]
pub struct Ready {
    pub token: PollToken,
    pub readable: bool,
    pub writable: bool,
    /// The peer has closed, at least for writing: read to the end of the stream.
    pub hangup: bool,
}

/// Which events to report.
#[derive(Debug, Clone, Copy)]
pub enum Interest {
    Read,
    Write,
    Both,
    /// Level-triggered: reported as long as it is readable.
    LevelRead,
}

/// The watched descriptors.
pub struct Poll {
    epoll: OwnedFd,
}

impl Poll {
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    /// Registers a descriptor, whose events then carry the token.
    pub fn add(&self, fd: impl AsFd, token: PollToken, interest: Interest) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, data(token), flags(interest))
    }

    /// Adds a descriptor again that is watched already.
    pub fn renew(&self, fd: impl AsFd, token: PollToken, interest: Interest) -> Result<(), Errno> {
        epoll::delete(&self.epoll, &fd)?;
        self.add(fd, token, interest)
    }

    /// Moves a watched descriptor to another owner, which gets an event at once if it is ready.
    pub fn reassign(&self, fd: impl AsFd, token: PollToken, interest: Interest) -> Result<(), Errno> {
        epoll::modify(&self.epoll, fd, data(token), flags(interest))
    }

    /// Waits for events until `timeout`. Returns their number; an interruption counts as none.
    pub fn wait(&self, events: &mut [Ready; BATCH], timeout: Option<Duration>) -> Result<usize, Errno> {
        let mut raw = [const { std::mem::MaybeUninit::<Event>::uninit() }; BATCH];
        let timeout = timeout.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        let (got, _) = match epoll::wait(&self.epoll, &mut raw, timeout.as_ref()) {
            Ok(got) => got,
            Err(Errno::INTR) => return Ok(0),
            Err(errno) => return Err(errno),
        };
        for (to, from) in events.iter_mut().zip(got.iter()) {
            let flags = from.flags;
            *to = Ready {
                token: token(from.data.u64()),
                readable: flags
                    .intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
                writable: flags.intersects(EventFlags::OUT | EventFlags::HUP | EventFlags::ERR),
                hangup: flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
            };
        }
        Ok(got.len())
    }

    /// An empty event, for arrays.
    pub fn no_event() -> Ready {
        Ready { token: token(0), readable: false, writable: false, hangup: false }
    }
}

fn flags(interest: Interest) -> EventFlags {
    match interest {
        Interest::Read => EventFlags::IN | EventFlags::RDHUP | EventFlags::ET,
        Interest::Write => EventFlags::OUT | EventFlags::ET,
        Interest::Both => EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET,
        Interest::LevelRead => EventFlags::IN,
    }
}

fn data(token: PollToken) -> EventData {
    EventData::new_u64(token.serial << 3 | token.role as u64)
}

fn token(data: u64) -> PollToken {
    PollToken { serial: data >> 3, role: ROLES[(data & 7) as usize] }
}
