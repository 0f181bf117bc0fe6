//! Keeps the kernel's out-of-memory killer away from the daemon and its lxcfs.
//!
//! Every sandbox loses them with their end, and none with that of one of its own programs. What the daemon starts inherits the score,
//! except sandboxes, which get the default one: see `rootfs::reset_oom_score`.

use std::fs;
use std::io;

/// Processes with it are killed last, and not never: a daemon that takes all memory must end.
const SCORE: i32 = -999;

/// Protects a process of the host, as `/proc` names it. A failure is logged: everything works without.
pub fn protect(process: &str) {
    if let Err(error) = lower(process) {
        tracing::warn!(process, %error, "a process is not protected from the kernel's out-of-memory killer");
    }
}

fn lower(process: &str) -> io::Result<()> {
    let file = format!("/proc/{process}/oom_score_adj");
    let score: i32 = fs::read_to_string(&file)?.trim().parse().map_err(io::Error::other)?;
    if score > SCORE { fs::write(&file, SCORE.to_string()) } else { Ok(()) }
}
