//! The attacks, by the resource that they take.

use crate::attack::{Attack, Bound, Form, Means, Requests, Share};
use crate::programs::{
    BPF, BUSY, DATAGRAMS, DESCRIPTORS, FLOWS, INFLIGHT, LATE_ACCEPT, MEMORY_FILES, NEIGHBOURS, OPTIONS,
    ORPHANS, PROCESSES, QUEUES, SECCOMP, TCP, UNIX,
};
use crate::{builds, clients};

/// A sandbox may use as many cores as this machine has, so each sandbox gets a half, and waits for its turn. Under gVisor a
/// program waits at each of its steps, because each switches between threads.
const CPU: Bound = Bound::Shared(Share {
    of_containers: 10.0,
    under_gvisor: 60.0,
    reason: "the cores are shared by weight",
});
/// Many programs that wake up all the time keep the scheduler of their processors from others until their sandbox has used its quota.
/// 11 to 43 s without the quota of CPU time; with it 0.2 s, and 1.1 s on a machine that compiles meanwhile.
const WAKE_UPS: Bound = Bound::Shared(Share {
    of_containers: 100.0,
    under_gvisor: 60.0,
    reason: "the scheduler lets those that wake up run first",
});
/// None of these sandboxes uses its whole quota.
const WAKE_UPS_OF_MANY: Bound = Bound::Unbounded(Share {
    of_containers: f64::INFINITY,
    under_gvisor: 60.0,
    reason: "the scheduler lets those that wake up run first",
});
/// In containers the resource belongs to the sandbox, or is refused. gVisor needs many cores for it.
const CPU_UNDER_GVISOR: Bound =
    Bound::Shared(Share { of_containers: 3.0, under_gvisor: 60.0, reason: "the cores are shared by weight" });
/// Every write and read waits for the same disk and for the journal of the host's file system.
const DISK: Bound = Bound::Shared(Share {
    of_containers: 20.0,
    under_gvisor: 60.0,
    reason: "the disk and its journal are shared",
});

/// Measured under gVisor only in the long form.
const fn row(name: &'static str, content: &'static str, arguments: &'static str) -> Attack {
    Attack { name, means: Means::Program(content, arguments, 1), bound: Bound::Own, form: Form::Containers }
}

/// Measured in all forms.
const fn always(row: Attack) -> Attack {
    Attack { form: Form::Short, ..row }
}

const fn shared(row: Attack, bound: Bound) -> Attack {
    Attack { bound, ..row }
}

/// Only in the long form, from a number of sandboxes of the account.
const fn many(row: Attack, sandboxes: usize) -> Attack {
    let Means::Program(content, arguments, _) = row.means else { return row };
    Attack { means: Means::Program(content, arguments, sandboxes), form: Form::Long, ..row }
}

const fn long(row: Attack) -> Attack {
    Attack { form: Form::Long, ..row }
}

/// Resources of the host's kernel.
pub const KERNEL: &[Attack] = &[
    row("socket filters", BPF, "26 20000"),
    long(row("filters of port groups", BPF, "51 20000")),
    many(shared(row("filters of system calls", SECCOMP, ""), CPU_UNDER_GVISOR), 2),
    always(row("TCP buffers", TCP, "4 700 0")),
    row("TCP buffers over IPv6", TCP, "6 700 0"),
    row("TCP buffers of the largest size", TCP, "4 700 67108864"),
    long(row("TCP buffers that are full when accepted", LATE_ACCEPT, "60")),
    row("options of sockets", OPTIONS, "3000"),
    shared(row("TCP orphans", ORPHANS, "14"), CPU),
    always(row("UDP buffers", DATAGRAMS, "udp4 3000")),
    row("UDP buffers over IPv6", DATAGRAMS, "udp6 3000"),
    long(row("Unix datagrams", DATAGRAMS, "unix 6000")),
    long(row("Unix streams", UNIX, "2600")),
    shared(row("descriptors in flight", INFLIGHT, ""), CPU),
    always(row("pseudo-terminals", DESCRIPTORS, "pty 1 5000")),
    row("inotify instances", DESCRIPTORS, "inotify 1 5000"),
    row("inotify watches", DESCRIPTORS, "watch 20 0"),
    long(row("queues of netlink", DESCRIPTORS, "netlink 1 60000")),
    row("message queues", QUEUES, "mqueue 1"),
    row("queued signals", QUEUES, "signal 2"),
    row("timers", QUEUES, "timer 2"),
    long(row("epoll interests", DESCRIPTORS, "interest 20 500000")),
    long(row("pipes", DESCRIPTORS, "pipe 20 2000")),
    long(row("file locks", QUEUES, "lock 8")),
    long(row("event descriptors", DESCRIPTORS, "eventfd 10 60000")),
    long(row("timer descriptors", DESCRIPTORS, "timerfd 10 60000")),
    long(row("memory files", DESCRIPTORS, "memfd 10 60000")),
    long(row("open files", DESCRIPTORS, "file 45 65000")),
    long(row("files of lxcfs", DESCRIPTORS, "meminfo 45 65000")),
    long(row("sockets", DESCRIPTORS, "socket 10 30000")),
    row("contexts of asynchronous I/O", QUEUES, "aio 1"),
    row("locked memory", QUEUES, "mlock 8"),
    long(row("System V memory", QUEUES, "shm 1")),
    long(row("System V semaphores", QUEUES, "sem 1")),
    long(row("System V messages", QUEUES, "msg 1")),
    row("processes", PROCESSES, "many"),
    many(row("processes of 32 sandboxes", PROCESSES, "many"), 32),
    long(shared(row("fork bomb", PROCESSES, "bomb"), WAKE_UPS)),
    many(shared(row("tracked connections", FLOWS, "198.18.77 20000"), CPU_UNDER_GVISOR), 8),
    row("neighbours", NEIGHBOURS, ""),
    always(row("files in memory", MEMORY_FILES, "")),
    always(shared(row("busy loops", BUSY, "loop 8"), CPU)),
    long(shared(row("memory bandwidth", BUSY, "memory 4"), CPU)),
    long(shared(row("page faults", BUSY, "touch 8"), CPU)),
    long(shared(row("crashes", BUSY, "crash 8"), CPU)),
    long(shared(row("unknown formats", BUSY, "formats 8"), CPU)),
    shared(row("short sleeps", BUSY, "sleep 200"), WAKE_UPS),
    many(shared(row("short sleeps of 4 sandboxes", BUSY, "sleep 50"), WAKE_UPS_OF_MANY), 4),
    shared(row("memory barriers", BUSY, "membarrier 50"), CPU),
    shared(row("files of /proc", BUSY, "proc 8"), CPU),
    long(shared(row("random bytes", BUSY, "random 8"), CPU)),
    long(shared(row("short connections", BUSY, "connections 8"), CPU)),
    shared(row("output of terminals", BUSY, "terminal 8"), CPU),
    always(shared(row("packets", BUSY, "packets 8 198.18.77.9"), CPU)),
    many(shared(row("refused packets", BUSY, "refused 4"), CPU), 4),
    shared(row("questions about links", BUSY, "links 50"), CPU),
    shared(row("signals to all processes", BUSY, "everybody 50"), CPU),
    shared(row("timers that expire together", BUSY, "expiry 8"), CPU),
    shared(row("advice about shared files", BUSY, "advice 4"), DISK),
    always(shared(row("names of missing files", BUSY, "names 8"), CPU)),
    long(shared(row("directories", BUSY, "directories 8"), CPU)),
    shared(row("sync", BUSY, "sync 8"), DISK),
    always(shared(row("fsync", BUSY, "fsync 8"), DISK)),
    long(shared(row("writes", BUSY, "write 4"), DISK)),
    long(shared(row("reads", BUSY, "read 4"), DISK)),
    long(shared(row("freed space", BUSY, "truncate 4"), DISK)),
    shared(row("questions to the DNS server", BUSY, "questions 8"), CPU),
    long(requests("learnt addresses", clients::lookups, CPU)),
    long(requests("out of memory", clients::memory_limits, CPU)),
];

const fn requests(name: &'static str, work: Requests, bound: Bound) -> Attack {
    Attack { name, means: Means::Client(work), bound, form: Form::Containers }
}

/// Resources of the daemon.
pub const DAEMON: &[Attack] = &[
    always(requests("commands", clients::executions, CPU)),
    requests("creates", clients::creates, CPU),
    always(requests("uploads", clients::uploads, DISK)),
    long(requests("inputs of commands", clients::inputs, CPU)),
    long(requests("outputs of commands", clients::outputs, CPU)),
    always(requests("terminals", clients::terminals, CPU)),
    requests("event streams", clients::event_streams, CPU),
    requests("events", clients::events, DISK),
    requests("lists", clients::lists, CPU),
    requests("blocking threads", clients::blocking, DISK),
    requests("responses without a window", clients::windows, Bound::Own),
    requests("requests to a port", clients::port_requests, Bound::Own),
    requests("connections through the proxy", clients::proxy, CPU),
    requests("long directories", clients::listings, CPU),
    requests("headers of archives", builds::headers, CPU),
    requests("names in archives", builds::names, CPU),
    requests("patterns of COPY", builds::stars, CPU),
];
