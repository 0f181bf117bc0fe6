//! The score of a sandbox's processes for the kernel's out-of-memory killer.
//!
//! The daemon and its programs have a low one, which whatever they start inherits. With that, a sandbox would outlive every other program
//! of the host.

use std::io;

use rustix::fs::{Mode, OFlags};

/// Gives this process the score 0 if it has a lower one. Processes that it starts cannot lower theirs below that without rights on the
/// host. Allocates nothing, so that it can run between a fork and an exec.
pub fn reset_oom_score() -> io::Result<()> {
    let file = rustix::fs::open(c"/proc/self/oom_score_adj", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let mut score = [0; 8];
    let length = rustix::io::read(&file, &mut score)?;
    // Only an operator gives the daemon a higher one, which stays.
    if score[..length].starts_with(b"-") {
        rustix::io::pwrite(&file, b"0", 0)?;
    }
    Ok(())
}
