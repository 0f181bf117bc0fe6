//! Ends programs that hold too much of the host's memory in connections.
//!
//! The kernel charges what a connection receives to the cgroup of whoever accepts it. Until then it is charged to nobody: a program
//! that listens, connects to itself and never accepts could take all the memory that the host has for connections. The charge of a
//! connection that is accepted when it is full cannot be refused, so it goes beyond every limit of a cgroup.
//!
//! The total of the host is read each time; only when that is high are the connections of sandboxes counted. A connection that no program
//! has accepted has no inode. One that its other side has reset is in no table, but stays in the queue of its listener, whose length is
//! known.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use api::SandboxId;
use base::IgnorePoison;

use super::Hoarders;
use crate::cgroup::CONNECTION_BYTES;
use crate::paths::{Paths, first_process};

const TOTALS: &str = "/proc/net/sockstat";
/// For each protocol: from how many pages on connections have to save memory, and others.
const TCP_SIZES: &str = "/proc/sys/net/ipv4/tcp_mem";
const UDP_SIZES: &str = "/proc/sys/net/ipv4/udp_mem";
/// The connections of sandboxes are counted when all connections of the host use a quarter of the memory that is free to use.
const WATCHED_PART: u64 = 4;
/// Or when there are this many of them; each takes 2.5 KB.
const WATCHED_CONNECTIONS: u64 = 100_000;
/// What one sandbox may have: four full listeners, and as many bytes as the connections of a program that is just busy.
const CONNECTIONS_MAX: u64 = 4 * 4096;
const BYTES_MAX: u64 = 32 << 20;
/// What the accepted connections of one sandbox may hold: twice what a limit allows, where there is one.
const CHARGED_BYTES_MAX: u64 = 2 * CONNECTION_BYTES;
/// Fewer connections than this cannot hold much.
const CONNECTIONS_MIN: u64 = 32;
/// What a connection may have received before it was reset: its first window. Programs cannot enlarge it (`kernel_memory`).
const RESET_BYTES: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// A program that accepts connections while their tables are read seems to have too many in one reading.
const READINGS: usize = 2;

/// Connections that no program has accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Unaccepted {
    connections: u64,
    /// What they have received. The kernel's buffers take up to four times as much.
    bytes: u64,
    /// Connections in the queues of listeners.
    queued: u64,
}

impl Unaccepted {
    /// Reads a table of `/proc/net`, such as `tcp`. It may have a million lines.
    fn of_table(mut table: impl BufRead) -> io::Result<Self> {
        let (mut all, mut line) = (Self::default(), String::new());
        table.read_line(&mut line)?; // the names of the columns
        loop {
            line.clear();
            if table.read_line(&mut line)? == 0 {
                return Ok(all);
            }
            all.add(&line);
        }
    }

    fn add(&mut self, line: &str) {
        let mut fields = line.split_ascii_whitespace().skip(3);
        let (Some(state), Some(queues), Some(inode)) = (fields.next(), fields.next(), fields.nth(4)) else {
            return;
        };
        let received = queues.split_once(':').and_then(|(_, number)| u64::from_str_radix(number, 16).ok());
        match (state, inode) {
            ("0A", _) => self.queued += received.unwrap_or(0),
            // Established, or closed by the other side: those of the latter kind go on holding what they received.
            ("01" | "08", "0") => {
                self.connections += 1;
                self.bytes += received.unwrap_or(0);
            }
            _ => {}
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            connections: self.connections + other.connections,
            bytes: self.bytes + other.bytes,
            queued: self.queued + other.queued,
        }
    }

    fn is_too_much(self) -> bool {
        let reset = self.queued.saturating_sub(self.connections);
        let connections = self.connections + reset;
        let bytes = self.bytes + reset * RESET_BYTES;
        connections > CONNECTIONS_MAX || (bytes > BYTES_MAX && connections > CONNECTIONS_MIN)
    }
}

/// The number after a word in the line about a protocol.
fn count(totals: &str, protocol: &str, word: &str) -> u64 {
    let line = totals.lines().find_map(|line| line.strip_prefix(protocol)).unwrap_or_default();
    let mut words = line.split_ascii_whitespace().skip_while(|found| *found != word).skip(1);
    words.next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Whether all connections of the host together are many or large. The sizes are the pages that each protocol may use freely.
fn is_close(totals: &str, tcp_pages: u64, udp_pages: u64) -> bool {
    let is_large = |protocol, pages| count(totals, protocol, "mem") > pages / WATCHED_PART;
    is_large("TCP:", tcp_pages)
        || is_large("UDP:", udp_pages)
        || count(totals, "TCP:", "alloc") > WATCHED_CONNECTIONS
}

fn is_close_now() -> io::Result<bool> {
    Ok(is_close(&fs::read_to_string(TOTALS)?, free_pages(TCP_SIZES)?, free_pages(UDP_SIZES)?))
}

/// The pages that a protocol may use freely.
fn free_pages(sizes: &str) -> io::Result<u64> {
    match fs::read_to_string(sizes) {
        Ok(text) => Ok(first_number(&text).unwrap_or_else(usual_free_pages)),
        // The file exists in the first network namespace only, and the daemon may be in another one.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(usual_free_pages()),
        Err(error) => Err(error),
    }
}

fn first_number(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// What the kernel chooses for TCP: three 64ths of the memory.
fn usual_free_pages() -> u64 {
    let system = rustix::system::sysinfo();
    system.totalram * u64::from(system.mem_unit) / PAGE * 3 / 64
}

/// Kills the commands of sandboxes that have too many connections, or too many bytes in them. Their agents go on. Returns which.
pub fn end_hoarders(hoarders: &Hoarders) -> io::Result<Vec<SandboxId>> {
    if !is_close_now()? {
        return Ok(Vec::new());
    }
    let mut looks = hoarders.connection_looks.lock().ignore_poison();
    let ended = looks.look(|| hoarders.end_all(|id| is_hoarder(hoarders, id)));
    ended.unwrap_or_else(|| Ok(Vec::new()))
}

/// Whether a sandbox is one that [`end_hoarders`] would end if it looked now.
pub fn is_hoarder_now(hoarders: &Hoarders, id: &SandboxId) -> io::Result<bool> {
    Ok(is_close_now()? && is_hoarder(hoarders, id))
}

fn is_hoarder(hoarders: &Hoarders, id: &SandboxId) -> bool {
    // It may end meanwhile.
    let charged = hoarders.cgroups.connection_bytes(id.as_str()).unwrap_or(0);
    charged > CHARGED_BYTES_MAX
        || has_too_many_unaccepted(&Paths::of(&hoarders.settings, id)).unwrap_or(false)
}

fn has_too_many_unaccepted(paths: &Paths) -> io::Result<bool> {
    let Some(pid) = first_process(paths) else { return Ok(false) };
    let dir = Path::new("/proc").join(pid.to_string()).join("net");
    // Short, unlike the tables, for each of which the kernel looks at all connections of the host.
    let in_use = |file, protocol| {
        Ok::<_, io::Error>(count(&fs::read_to_string(dir.join(file))?, protocol, "inuse") > 0)
    };
    if !in_use("sockstat", "TCP:")? && !in_use("sockstat6", "TCP6:")? {
        return Ok(false);
    }
    for _ in 0..READINGS {
        if !unaccepted(&dir)?.is_too_much() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The connections of a network namespace that no program has accepted.
fn unaccepted(dir: &Path) -> io::Result<Unaccepted> {
    let of = |table: PathBuf| match File::open(table) {
        Ok(file) => Unaccepted::of_table(BufReader::new(file)),
        // A host without IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Unaccepted::default()),
        Err(error) => Err(error),
    };
    Ok(of(dir.join("tcp"))?.plus(of(dir.join("tcp6"))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

    fn line(state: &str, received: u64, inode: u64) -> String {
        format!(
            "   1: 0100007F:1B59 0100007F:A2C4 {state} 00000000:{received:08X} 00:00000000 00000000     0        0 {inode} 1 0\n"
        )
    }

    #[test]
    fn connections_without_an_inode_are_unaccepted() {
        let listening = line("0A", 2, 77);
        let text = [
            HEAD,
            &listening,
            &line("01", 1000, 0),
            &line("08", 24, 0),
            &line("01", 5, 9),
            &line("06", 0, 0),
        ]
        .concat();
        assert_eq!(
            Unaccepted::of_table(text.as_bytes()).unwrap(),
            Unaccepted { connections: 2, bytes: 1024, queued: 2 }
        );
        assert_eq!(Unaccepted::of_table(HEAD.as_bytes()).unwrap(), Unaccepted::default());
        assert_eq!(Unaccepted::of_table(&b"\n1 2 3\n"[..]).unwrap(), Unaccepted::default());
    }

    #[test]
    fn a_server_that_is_busy_is_no_hoarder() {
        let of = |connections, bytes, queued| Unaccepted { connections, bytes, queued }.is_too_much();
        assert!(!of(4096, 16 << 20, 4096) && !of(0, 0, 0) && !of(3, 300 << 20, 3));
        assert!(of(100, 33 << 20, 100) && of(16_385, 0, 16_385));
        // Connections that were reset are only in the queue.
        assert!(!of(0, 0, 500) && of(0, 0, 513) && of(4096, 0, 4096 + 513));
    }

    #[test]
    fn sandboxes_are_counted_only_when_the_host_has_much_in_use() {
        let is_close = |alloc: u64, mem: u64, udp: u64| {
            let tcp = format!("TCP: inuse 4 orphan 0 tw 0 alloc {alloc} mem {mem}");
            let totals = format!("sockets: used 9\n{tcp}\nUDP: inuse 1 mem {udp}\n");
            super::is_close(&totals, 400_000, 200_000)
        };
        assert!(!is_close(10, 100_000, 0) && is_close(10, 100_001, 0) && is_close(100_001, 0, 0));
        assert!(!is_close(10, 0, 50_000) && is_close(10, 0, 50_001));
        assert!(!super::is_close("", 4, 4) && !super::is_close("TCP: mem\n", 4, 4));
    }

    #[test]
    fn the_sizes_are_known_in_every_network_namespace() {
        let usual = usual_free_pages();
        assert!(usual > 1000);
        assert_eq!(free_pages("/proc/no/such/file").unwrap(), usual);
        assert_eq!((first_number("287901\t383869\t575802\n"), first_number("")), (Some(287_901), None));
        assert!(is_close_now().is_ok());
    }
}
