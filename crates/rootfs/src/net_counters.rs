//! Hides counters of the host among the files about the network in a container's `/proc`.
//!
//! These files belong to the network namespace, but some of what they show is counted for the host as a whole, such as the memory of
//! all TCP connections: a sandbox could watch its neighbours. A mount cannot cover them, because they appear again in the directory
//! of each process. So they get the host's root as their owner, whom nobody inside can become, and who alone can read them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

/// Files with counters of the whole host. A kernel may lack some.
const FILES: [&str; 5] = ["protocols", "sockstat", "sockstat6", "softnet_stat", "stat/rt_cache"];

/// Hides the counters in the network namespace of a process, in which no command of the sandbox runs yet.
pub fn hide_host_counters(pid: libc::pid_t) -> io::Result<()> {
    let dir = Path::new("/proc").join(pid.to_string()).join("net");
    for file in FILES {
        let file = dir.join(file);
        match chown(&file, Some(0), Some(0)) {
            Ok(()) => fs::set_permissions(&file, Permissions::from_mode(0o400))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
