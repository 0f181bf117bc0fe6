//! Tables and rates of the kernel that all processes of the host share, and whose sizes the kernel chooses for a host of another
//! purpose.
//!
//! Each sandbox has limits of its own, which are far below these sizes; they are raised here so that many sandboxes at their limits
//! do not fill a table. What an entry takes is charged to the sandbox, or so small that the size alone bounds it. A size is never
//! lowered: the operator's choice stays. The only setting with one right value is how much the kernel logs when a sandbox is out of
//! memory. Called by the server before the first sandbox starts, and by `sandboxd doctor`.

use std::fs;
use std::io;

use crate::cgroup::SharedLimits;

const PAGE_BYTES: u64 = 4096;
/// Memory of the smallest sandbox.
const SMALLEST_SANDBOX_MB: u64 = 2048;
/// Connections that the packet filter lets the kernel track, of one sandbox.
const TRACKED_CONNECTIONS: std::ops::RangeInclusive<u64> = 1024..=8192;
/// The host has at most one tracked connection for this much memory. One takes 320 bytes, so all take a 51st.
const MEMORY_PER_TRACKED: u64 = 16 << 10;
const TRACKED: &str = "net.netfilter.nf_conntrack_max";
/// Pseudo-terminals of one sandbox, with those that the kernel keeps for the host.
const PSEUDO_TERMINALS: u64 = crate::description::PSEUDO_TERMINALS as u64;
const HOST_PSEUDO_TERMINALS: u64 = 4096;
/// The largest size that the kernel accepts.
const PSEUDO_TERMINALS_MAX: u64 = 1 << 20;
/// The largest process id of a 64-bit kernel.
const PROCESSES_MAX: u64 = 1 << 22;
/// A process takes about this much of the kernel's memory.
const PROCESS_BYTES: u64 = 32 << 10;
/// A filter of system calls takes about this much. [`HOST_FILTER_BYTES`] is for the programs of the kernel and of the host.
const FILTER_BYTES: u64 = 32 << 10;
const HOST_FILTER_BYTES: u64 = 256 << 20;
/// A closed connection whose data was not sent yet takes at least this much.
const ORPHAN_BYTES: u64 = 64 << 10;
/// The smallest ring of asynchronous reads and writes takes a page, for at least this many entries.
const AIO_ENTRIES_PER_PAGE: u64 = 64;
/// The sizes for the network's memory, as parts of the host's: what is free to use, from where on connections save, and the maximum.
const NETWORK_MEMORY_SIXTEENTHS: [u64; 3] = [2, 3, 4];

/// ICMP errors of the host to one sandbox in a second, and at once, as the packet filter limits them.
const ICMP_ERRORS: u64 = 100;
/// Those to all others: the kernel's own choice.
const HOST_ICMP_ERRORS: u64 = 1000;

/// A table, and the sizes that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelTable {
    /// The name of the setting, as `sysctl` has it.
    pub name: &'static str,
    pub wanted: Vec<u64>,
    pub bound: SizeBound,
}

/// Which other sizes of a table are good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeBound {
    /// Larger ones.
    AtLeast,
    /// None.
    Exactly,
}

/// The state of a table.
#[derive(Debug)]
pub enum TableState {
    /// Good.
    Enough,
    /// Not as wanted.
    Other { sizes: Vec<u64> },
    /// This kernel does not have the setting, or not yet.
    Missing,
}

/// The host, as far as the sizes depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostSize {
    pub memory_mb: u64,
    /// How many times the memory is promised to sandboxes.
    pub overcommit_memory: f64,
    /// The maximum number of sandboxes.
    pub slots: u32,
}

impl HostSize {
    /// How many sandboxes can run at once.
    pub fn sandboxes(self) -> u64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an estimate; the factor is positive"
        )]
        let promised_mb = (self.memory_mb as f64 * self.overcommit_memory) as u64;
        (promised_mb / SMALLEST_SANDBOX_MB).clamp(1, u64::from(self.slots))
    }
}

/// The sizes for a host.
pub fn kernel_tables(host: HostSize) -> Vec<KernelTable> {
    let memory = host.memory_mb << 20;
    let sandboxes = host.sandboxes();
    let processes = (memory / PROCESS_BYTES).min(PROCESSES_MAX);
    let network = NETWORK_MEMORY_SIXTEENTHS.map(|part| memory / 16 * part / PAGE_BYTES);
    // By slots, not by memory: small sandboxes may use little of their memory and still have terminals and filters.
    let terminals = HOST_PSEUDO_TERMINALS + PSEUDO_TERMINALS * u64::from(host.slots);
    let table =
        |name, wanted: &[u64]| KernelTable { name, wanted: wanted.to_vec(), bound: SizeBound::AtLeast };
    let icmp_errors = HOST_ICMP_ERRORS + ICMP_ERRORS * u64::from(host.slots);
    vec![
        table("net.core.bpf_jit_limit", &[HOST_FILTER_BYTES + FILTER_BYTES * u64::from(host.slots)]),
        // Open files are charged to the memory of whoever opens them.
        table("fs.file-max", &[i64::MAX.unsigned_abs()]),
        table("fs.aio-max-nr", &[memory / PAGE_BYTES * AIO_ENTRIES_PER_PAGE]),
        table("kernel.pid_max", &[PROCESSES_MAX]),
        table("kernel.threads-max", &[processes]),
        table("kernel.pty.max", &[terminals.min(PSEUDO_TERMINALS_MAX)]),
        table("net.ipv4.tcp_mem", &network),
        table("net.ipv4.udp_mem", &network),
        table("net.ipv4.tcp_max_orphans", &[memory / ORPHAN_BYTES]),
        table(TRACKED, &[(TRACKED_CONNECTIONS.end() * sandboxes * 4 / 3).min(memory / MEMORY_PER_TRACKED)]),
        // Without its error, a program that is refused waits until it gives up.
        table("net.ipv4.icmp_msgs_per_sec", &[icmp_errors]),
        table("net.ipv4.icmp_msgs_burst", &[icmp_errors]),
        // Otherwise each program that is killed for the memory of its sandbox writes a line for each process of the sandbox.
        KernelTable { name: "vm.oom_dump_tasks", wanted: vec![0], bound: SizeBound::Exactly },
    ]
}

/// A sandbox's share of the connections that the kernel tracks. A quarter is left for the host.
pub fn tracked_connections(host: HostSize) -> u32 {
    let sizes = kernel_tables(host).into_iter().filter(|table| table.name == TRACKED).map(|table| {
        // Before the first use the kernel does not have the table yet.
        table.good(&table.sizes().unwrap_or_else(|_| vec![0])).first().copied()
    });
    share_of_connections(sizes.flatten().sum(), host.sandboxes())
}

fn share_of_connections(size: u64, sandboxes: u64) -> u32 {
    let share = size / 4 * 3 / sandboxes;
    let share = share.clamp(*TRACKED_CONNECTIONS.start(), *TRACKED_CONNECTIONS.end());
    u32::try_from(share).unwrap_or(u32::MAX)
}

impl KernelTable {
    fn path(&self) -> String {
        format!("/proc/sys/{}", self.name.replace('.', "/"))
    }

    fn sizes(&self) -> io::Result<Vec<u64>> {
        let text = fs::read_to_string(self.path())?;
        let words = text.split_whitespace();
        words.map(|word| word.parse().map_err(io::Error::other)).collect()
    }

    /// The good sizes that are nearest to the present ones.
    fn good(&self, sizes: &[u64]) -> Vec<u64> {
        match self.bound {
            SizeBound::AtLeast => raised(sizes, &self.wanted),
            SizeBound::Exactly => self.wanted.clone(),
        }
    }

    /// Compares the table with the wanted sizes.
    pub fn state(&self) -> io::Result<TableState> {
        match self.sizes() {
            Ok(sizes) if self.good(&sizes) == sizes => Ok(TableState::Enough),
            Ok(sizes) => Ok(TableState::Other { sizes }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TableState::Missing),
            Err(error) => Err(error),
        }
    }

    /// Changes the sizes that are not as wanted.
    pub fn apply(&self) -> io::Result<()> {
        match self.state()? {
            TableState::Enough | TableState::Missing => Ok(()),
            TableState::Other { sizes } => fs::write(self.path(), words(&self.good(&sizes))),
        }
    }

    /// The setting that [`Self::apply`] makes of such sizes, as `sysctl -w` takes it.
    pub fn setting(&self, sizes: &[u64]) -> String {
        format!("{}=\"{}\"", self.name, words(&self.good(sizes)))
    }
}

fn words(sizes: &[u64]) -> String {
    sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")
}

fn raised(sizes: &[u64], wanted: &[u64]) -> Vec<u64> {
    let pairs = sizes.iter().zip(wanted.iter().chain(std::iter::repeat(&0)));
    pairs.map(|(size, wanted)| *size.max(wanted)).collect()
}

/// What all sandboxes together may use of the host's memory and of the tables as they are now. The rest is the host's.
pub fn shared_limits(memory_mb: u64) -> SharedLimits {
    let size = |name, position: usize| {
        let table = KernelTable { name, wanted: Vec::new(), bound: SizeBound::AtLeast };
        table.sizes().ok().and_then(|sizes| sizes.get(position).copied()).unwrap_or(u64::from(u32::MAX))
    };
    let tasks = size("kernel.pid_max", 0).min(size("kernel.threads-max", 0));
    SharedLimits {
        memory_bytes: memory_mb << 20,
        tasks: tasks / 8 * 7,
        // Connections of all processes save from the second size on.
        tcp_bytes: size("net.ipv4.tcp_mem", 1) / 4 * 3 * PAGE_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(host: HostSize, name: &str) -> Vec<u64> {
        let tables = kernel_tables(host);
        tables.into_iter().find(|table| table.name == name).map(|table| table.wanted).unwrap()
    }

    #[test]
    fn no_table_is_filled_by_as_many_sandboxes_as_can_run() {
        for memory_mb in [4096, 24 << 10, 512 << 10] {
            let host = HostSize { memory_mb, overcommit_memory: 4.0, slots: 3840 };
            let sandboxes = host.sandboxes();
            assert!((1..=3840).contains(&sandboxes));
            let tracked = wanted(host, TRACKED)[0];
            let share = u64::from(share_of_connections(tracked, sandboxes));
            assert!(
                share * sandboxes <= tracked / 4 * 3 && tracked * 320 <= (memory_mb << 20) / 32,
                "{share}"
            );
            assert!(wanted(host, "kernel.pty.max")[0] >= 3840 * PSEUDO_TERMINALS);
            let network = wanted(host, "net.ipv4.tcp_mem");
            assert!(network.is_sorted() && network[2] * PAGE_BYTES <= (memory_mb << 20) / 4, "{network:?}");
            for rate in ["net.ipv4.icmp_msgs_per_sec", "net.ipv4.icmp_msgs_burst"] {
                assert!(wanted(host, rate)[0] > 3840 * ICMP_ERRORS, "{rate}");
            }
        }
    }

    #[test]
    fn sizes_are_only_raised() {
        assert_eq!(raised(&[5, 6, 700], &[50, 60, 70]), [50, 60, 700]);
        assert_eq!(raised(&[5, 6], &[4]), [5, 6]);
        let table =
            KernelTable { name: "net.ipv4.tcp_mem", wanted: vec![1, 2, 3], bound: SizeBound::AtLeast };
        assert_eq!(
            (table.path().as_str(), table.setting(&[0, 700, 1]).as_str()),
            ("/proc/sys/net/ipv4/tcp_mem", "net.ipv4.tcp_mem=\"1 700 3\"")
        );
        assert!(matches!(table.state().unwrap(), TableState::Enough));
        let missing =
            KernelTable { name: "net.ipv4.no_such_setting", wanted: vec![1], bound: SizeBound::AtLeast };
        assert!(matches!(missing.state().unwrap(), TableState::Missing));
        missing.apply().unwrap();
    }

    #[test]
    fn an_exact_setting_is_lowered() {
        let host = HostSize { memory_mb: 4096, overcommit_memory: 1.0, slots: 10 };
        let tables = kernel_tables(host);
        let log = tables.iter().find(|table| table.name == "vm.oom_dump_tasks").unwrap();
        assert_eq!(
            (log.good(&[1]), log.good(&[0]), log.setting(&[1]).as_str()),
            (vec![0], vec![0], "vm.oom_dump_tasks=\"0\"")
        );
    }
}
