//! Terminals for commands: the pair of descriptors, the size, the foreground process group. Called by `spawn` and
//! `serve`.
//!
//! Root in the sandbox can replace anything in `/dev`, so opened files are checked before use, and opened without
//! blocking. If one is not the expected device, the command is refused.

use std::os::fd::{AsFd, OwnedFd};

use guest_proto::TerminalSize;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::pty::OpenptFlags;
use rustix::termios::{InputModes, OptionalActions, Winsize};

/// Device number of `/dev/ptmx`, and the first and last major number of its terminals.
const PTMX_DEVICE: (u32, u32) = (5, 2);
const TERMINALS: std::ops::RangeInclusive<u32> = 136..=143;
/// The sandbox's own devpts first: nothing inside can be mounted over it.
const PTMX_PATHS: [&str; 2] = ["/dev/pts/ptmx", "/dev/ptmx"];

/// Both ends of a terminal.
pub struct Terminal {
    /// The agent's end, non-blocking.
    pub master: OwnedFd,
    /// The command's end.
    pub slave: OwnedFd,
}

/// Makes a terminal.
pub fn open(size: TerminalSize) -> Result<Terminal, Errno> {
    let master =
        PTMX_PATHS.iter().map(|path| open_ptmx(path)).find(Result::is_ok).unwrap_or(Err(Errno::NODEV))?;
    rustix::pty::unlockpt(&master)?;
    resize(&master, size)?;
    let slave = slave(&master)?;
    if let Ok(mut modes) = rustix::termios::tcgetattr(&slave) {
        // Erase whole characters instead of bytes.
        modes.input_modes |= InputModes::IUTF8;
        let _ = rustix::termios::tcsetattr(&slave, OptionalActions::Now, &modes);
    }
    Ok(Terminal { master, slave })
}

/// Changes the size; the foreground processes get SIGWINCH.
pub fn resize(master: impl AsFd, size: TerminalSize) -> Result<(), Errno> {
    let size = Winsize { ws_col: size.columns, ws_row: size.rows, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(master, size)
}

/// The foreground process group.
pub fn foreground(master: impl AsFd) -> Option<Pid> {
    // Group 1 is never a command's, and as an argument of kill it would mean all processes.
    rustix::termios::tcgetpgrp(master).ok().filter(|group| !group.is_init())
}

fn open_ptmx(path: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let master = rustix::fs::open(path, flags, Mode::empty())?;
    if device(&master)? == Some(PTMX_DEVICE) { Ok(master) } else { Err(Errno::NODEV) }
}

/// Opens the other end through the first one where the kernel supports that, else by its number.
fn slave(master: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    if let Ok(slave) = rustix::pty::ioctl_tiocgptpeer(master, flags) {
        return Ok(slave);
    }
    let path = rustix::pty::ptsname(master, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    // The path may have been replaced by a file that blocks when opened.
    let slave = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty())?;
    rustix::io::ioctl_fionbio(&slave, false)?;
    let is_one = device(&slave)?.is_some_and(|(major, _)| TERMINALS.contains(&major));
    if is_one { Ok(slave) } else { Err(Errno::NODEV) }
}

/// The device number of an open file.
fn device(fd: &OwnedFd) -> Result<Option<(u32, u32)>, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    Ok(is_device.then(|| (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev))))
}
