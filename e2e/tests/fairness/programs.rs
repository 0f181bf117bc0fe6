//! Programs in Perl, which every Debian has and whose `syscall` makes any call: those of the attackers, and three of the victim.

use std::fmt::Write as _;

const PRELUDE: &str = include_str!("programs/prelude.pl");
pub const SERVER: &str = include_str!("programs/server.pl");
pub const PROBE: &str = include_str!("programs/probe.pl");
pub const BPF: &str = include_str!("programs/bpf.pl");
pub const BUSY: &str = include_str!("programs/busy.pl");
pub const CONNECTIONS: &str = include_str!("programs/connections.pl");
pub const DATAGRAMS: &str = include_str!("programs/datagrams.pl");
pub const DESCRIPTORS: &str = include_str!("programs/descriptors.pl");
pub const FLOWS: &str = include_str!("programs/flows.pl");
pub const INFLIGHT: &str = include_str!("programs/inflight.pl");
pub const LATE_ACCEPT: &str = include_str!("programs/late_accept.pl");
pub const MEMORY_FILES: &str = include_str!("programs/memory_files.pl");
pub const NEIGHBOURS: &str = include_str!("programs/neighbours.pl");
pub const OPTIONS: &str = include_str!("programs/options.pl");
pub const ORPHANS: &str = include_str!("programs/orphans.pl");
pub const PROCESSES: &str = include_str!("programs/processes.pl");
pub const QUEUES: &str = include_str!("programs/queues.pl");
pub const SECCOMP: &str = include_str!("programs/seccomp.pl");
pub const TCP: &str = include_str!("programs/tcp.pl");
pub const TRANSFER: &str = include_str!("programs/transfer.pl");
pub const UNIX: &str = include_str!("programs/unix.pl");

/// The numbers of the system calls that the programs make.
const CALLS: [(&str, i64); 24] = [
    ("epoll_create1", libc::SYS_epoll_create1),
    ("epoll_ctl", libc::SYS_epoll_ctl),
    ("eventfd2", libc::SYS_eventfd2),
    ("execve", libc::SYS_execve),
    ("fadvise64", libc::SYS_fadvise64),
    ("fsync", libc::SYS_fsync),
    ("getrandom", libc::SYS_getrandom),
    ("getrlimit", libc::SYS_getrlimit),
    ("inotify_add_watch", libc::SYS_inotify_add_watch),
    ("inotify_init1", libc::SYS_inotify_init1),
    ("io_setup", libc::SYS_io_setup),
    ("membarrier", libc::SYS_membarrier),
    ("memfd_create", libc::SYS_memfd_create),
    ("mlock", libc::SYS_mlock),
    ("mq_open", libc::SYS_mq_open),
    ("mq_unlink", libc::SYS_mq_unlink),
    ("prctl", libc::SYS_prctl),
    ("rt_sigqueueinfo", libc::SYS_rt_sigqueueinfo),
    ("sendmsg", libc::SYS_sendmsg),
    ("setrlimit", libc::SYS_setrlimit),
    ("sync", libc::SYS_sync),
    ("timer_create", libc::SYS_timer_create),
    ("timerfd_create", libc::SYS_timerfd_create),
    ("timerfd_settime", libc::SYS_timerfd_settime),
];

/// The complete text of a program.
pub fn program(text: &str) -> String {
    let mut whole = String::from("our %SYS = (");
    for (name, number) in CALLS {
        // Writing to a string does not fail.
        let _ = write!(whole, "{name} => {number}, ");
    }
    whole + ");\n" + PRELUDE + text
}
