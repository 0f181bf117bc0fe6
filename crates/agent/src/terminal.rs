//! A terminal for a command: the pair of it, its size, and who reads what is typed. Called by `spawn` and `serve`.
//!
//! Whoever is root inside can put anything at `/dev`. What is opened here is looked at before it is used, and opening waits for
//! nobody; where something else is in the way the command is refused, and nothing else happens.

use std::os::fd::{AsFd, OwnedFd};

use guest_proto::TerminalSize;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};

/// The kernel's numbers of what makes terminals, and of the first and last kind of what it makes.
const MAKER: (u32, u32) = (5, 2);
const TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
/// First the sandbox's own, over which nothing inside can put anything.
const MAKERS: [&str; 2] = ["/dev/pts/ptmx", "/dev/ptmx"];

/// Both ends.
pub struct Terminal {
    /// Ours, which does not block.
    pub master: OwnedFd,
    /// The command's.
    pub slave: OwnedFd,
}

/// Makes a terminal.
pub fn open(size: TerminalSize) -> Result<Terminal, Errno> {
    let master = MAKERS.iter().map(|path| maker(path)).find(Result::is_ok).unwrap_or(Err(Errno::NODEV))?;
    rustix::pty::unlockpt(&master)?;
    resize(&master, size)?;
    let slave = slave(&master)?;
    if let Ok(mut modes) = rustix::termios::tcgetattr(&slave) {
        // So that erasing erases characters; without it bytes are erased.
        modes.input_modes |= InputModes::IUTF8;
        let _ = rustix::termios::tcsetattr(&slave, OptionalActions::Now, &modes);
    }
    Ok(Terminal { master, slave })
}

/// Gives a terminal another size; who runs on it hears of it by SIGWINCH.
pub fn resize(master: impl AsFd, size: TerminalSize) -> Result<(), Errno> {
    let size = Winsize { ws_col: size.columns, ws_row: size.rows, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size)
}

/// The process group that reads what is typed.
pub fn foreground(master: impl AsFd) -> Option<Pid> {
    // Process 1 leads no group of a command's, and its number would mean everybody.
    rustix::termios::tcgetpgrp(master).ok().filter(|group| !group.is_init())
}

fn maker(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let master = rustix::fs::open(path, flags, Mode::empty())?;
    if device(&master)? == Some(MAKER) { Ok(master) } else { Err(Errno::NODEV) }
}

/// By the other end's own hand where the kernel does that, and by its number where it does not.
fn slave(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    if let Ok(slave) = rustix::pty::ioctl_tiocgptpeer(master, flags) {
        return Ok(slave);
    }
    let path = rustix::pty::ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // What is not there by the kernel's hand might wait for somebody when it is opened.
    let slave = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty())?;
    rustix::io::ioctl_fionbio(&slave, false)?;
    let is_one = device(&slave)?.is_some_and(|(major, _)| TERMINALS.contains(&major));
    if is_one { Ok(slave) } else { Err(Errno::NODEV) }
}

/// The numbers of the device that is open.
fn device(fd: &OwnedFd) -> Result<Option<(u32, u32)>, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_device.then(|| (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))))
}
