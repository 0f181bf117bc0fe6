//! Ends programs that hold too much of the host's memory in connections that nobody accepts.
//!
//! The kernel charges what a connection receives to the cgroup of whoever accepts it. Until then it is charged to nobody: a program
//! that listens, connects to itself and never accepts could take all the memory that the host has for connections. The total of the host
//! is read each time; only when that is high are the connections of sandboxes counted. A connection that no program has accepted has no
//! inode. One that its other side has reset is in no table, but stays in the queue of its listener, whose length is known.

use std::fs;
use std::io;
use std::path::Path;

use api::SandboxId;

use super::{end_commands, sandboxes};
use crate::inner::Inner;
use crate::paths::{Paths, first_process};

const TOTALS: &str = "/proc/net/sockstat";
const SIZES: &str = "/proc/sys/net/ipv4/tcp_mem";
/// The connections of sandboxes are counted when all connections of the host use a quarter of the memory that is free to use.
const WATCHED_PART: u64 = 4;
/// Or when there are this many of them; each takes 2.5 KB.
const WATCHED_CONNECTIONS: u64 = 100_000;
/// What one sandbox may have: four full listeners, and as many bytes as the connections of a program that is just busy.
const CONNECTIONS_MAX: u64 = 4 * 4096;
const BYTES_MAX: u64 = 32 << 20;
/// Fewer connections than this cannot hold much.
const CONNECTIONS_MIN: u64 = 32;
/// What a connection may have received before it was reset: its first window. Programs cannot enlarge it (`kernel_memory`).
const RESET_BYTES: u64 = 64 << 10;

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
    /// Reads a table of `/proc/net`, such as `tcp`.
    fn of_table(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines().skip(1) {
            let mut fields = line.split_ascii_whitespace().skip(3);
            let (Some(state), Some(queues), Some(inode)) = (fields.next(), fields.next(), fields.nth(4))
            else {
                continue;
            };
            let received =
                queues.split_once(':').and_then(|(_, number)| u64::from_str_radix(number, 16).ok());
            match (state, inode) {
                ("0A", _) => all.queued += received.unwrap_or(0),
                // Established, or closed by the other side: those of the latter kind go on holding what they received.
                ("01" | "08", "0") => {
                    all.connections += 1;
                    all.bytes += received.unwrap_or(0);
                }
                _ => {}
            }
        }
        all
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

/// Whether all connections of the host together are many or large.
fn is_close(totals: &str, sizes: &str) -> bool {
    let free_to_use = sizes.split_ascii_whitespace().next().and_then(|pages| pages.parse().ok());
    count(totals, "TCP:", "mem") > free_to_use.unwrap_or(u64::MAX) / WATCHED_PART
        || count(totals, "TCP:", "alloc") > WATCHED_CONNECTIONS
}

/// Kills the commands of sandboxes that have too many connections or bytes that nobody accepts. Their agents go on. Returns which.
pub fn end_hoarders(inner: &Inner) -> io::Result<Vec<SandboxId>> {
    if !is_close(&fs::read_to_string(TOTALS)?, &fs::read_to_string(SIZES)?) {
        return Ok(Vec::new());
    }
    Ok(sandboxes(inner)?.into_iter().filter(|id| is_hoarder(inner, id) && end_commands(inner, id)).collect())
}

fn is_hoarder(inner: &Inner, id: &SandboxId) -> bool {
    let Some(pid) = first_process(&Paths::of(&inner.settings, id)) else { return false };
    let dir = Path::new("/proc").join(pid.to_string()).join("net");
    let read = |name| fs::read_to_string(dir.join(name)).unwrap_or_default();
    Unaccepted::of_table(&read("tcp")).plus(Unaccepted::of_table(&read("tcp6"))).is_too_much()
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
        assert_eq!(Unaccepted::of_table(&text), Unaccepted { connections: 2, bytes: 1024, queued: 2 });
        assert_eq!(Unaccepted::of_table(HEAD), Unaccepted::default());
        assert_eq!(Unaccepted::of_table("\n1 2 3\n"), Unaccepted::default());
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
        let totals = |alloc: u64, mem: u64| {
            format!(
                "sockets: used 9\nTCP: inuse 4 orphan 0 tw 0 alloc {alloc} mem {mem}\nUDP: inuse 1 mem 999999\n"
            )
        };
        let sizes = "400000 500000 600000\n";
        assert!(!is_close(&totals(10, 100_000), sizes) && is_close(&totals(10, 100_001), sizes));
        assert!(is_close(&totals(100_001, 0), sizes) && !is_close("", sizes) && !is_close("TCP: mem\n", ""));
    }
}
