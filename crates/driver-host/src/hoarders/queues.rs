//! Ends programs that hold too much memory of the host in the queues of sockets whose memory the kernel charges to nobody.
//!
//! These are netlink, raw and ping sockets, and what UDP sockets keep back until a message is complete. A program that never reads
//! the answers of netlink could take all memory of the host. It is memory of slabs that cannot be reclaimed; only when the host has
//! more of that are the sockets of sandboxes counted.

use std::fs;
use std::io;
use std::path::Path;

use api::SandboxId;

use super::Hoarders;
use crate::paths::{Paths, first_process};

/// What the sockets of one sandbox may hold. A program that is just busy holds a small part of it.
const BYTES_MAX: u64 = 64 << 20;
/// The tables of `/proc/net` of sockets whose memory has no limit, in the form of that of TCP.
const TABLES: [&str; 4] = ["raw", "raw6", "icmp", "icmp6"];
/// Of these only what is about to be sent has no limit.
const SENDING: [&str; 2] = ["udp", "udp6"];

/// Kills the commands of sandboxes whose sockets hold too much. Their agents go on. Returns which.
pub fn end_hoarders(hoarders: &Hoarders) -> io::Result<Vec<SandboxId>> {
    let ended = hoarders.slabs.count_if_grown(|| hoarders.end_all(|id| is_hoarder(hoarders, id)));
    ended?.unwrap_or_else(|| Ok(Vec::new()))
}

/// Whether a sandbox is one that [`end_hoarders`] would end if it looked now.
pub fn is_hoarder_now(hoarders: &Hoarders, id: &SandboxId) -> io::Result<bool> {
    Ok(hoarders.slabs.is_large()? && is_hoarder(hoarders, id))
}

fn is_hoarder(hoarders: &Hoarders, id: &SandboxId) -> bool {
    let Some(pid) = first_process(&Paths::of(&hoarders.settings, id)) else { return false };
    let dir = Path::new("/proc").join(pid.to_string()).join("net");
    let read = |name: &&str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let netlink = netlink_bytes(&read(&"netlink"));
    let queues = TABLES.iter().map(|table| queue_bytes(&read(table))).map(|[sent, received]| sent + received);
    let sending = SENDING.iter().map(|table| queue_bytes(&read(table))).map(|[sent, _]| sent);
    netlink + queues.sum::<u64>() + sending.sum::<u64>() > BYTES_MAX
}

/// What all sockets of the table of netlink hold.
fn netlink_bytes(table: &str) -> u64 {
    // A line has the fields sk, Eth, Pid, Groups, Rmem, Wmem and others.
    let of_line = |line: &str| {
        let mut fields = line.split_ascii_whitespace().skip(4);
        let mut number = || fields.next()?.parse::<u64>().ok();
        Some(number()? + number()?)
    };
    table.lines().skip(1).filter_map(of_line).sum()
}

/// The bytes that all sockets of a table are about to send, and those that they have received.
fn queue_bytes(table: &str) -> [u64; 2] {
    let of_line = |line: &str| {
        let (sent, received) = line.split_ascii_whitespace().nth(4)?.split_once(':')?;
        Some([u64::from_str_radix(sent, 16).ok()?, u64::from_str_radix(received, 16).ok()?])
    };
    let lines = table.lines().skip(1).filter_map(of_line);
    lines.fold([0; 2], |[sent, received], line| [sent + line[0], received + line[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_of_sockets_are_added() {
        let netlink = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
            0000000000000000 0   4711       00000000 213504   0        0     2        53       900\n\
            0000000000000000 0   0          00000000 0        7        0     2        0        901\n";
        assert_eq!(netlink_bytes(netlink), 213_511);
        let raw = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            255: 0100007F:00FF 00000000:0000 07 00000010:00034280 00:00000000 00000000     0        0 77 2 0000000000000000 9\n";
        assert_eq!(queue_bytes(raw), [16, 0x34280]);
        assert_eq!((netlink_bytes(""), queue_bytes("head\n1 2 3\n")), (0, [0, 0]));
    }

    #[test]
    fn a_queue_that_is_not_read_is_seen() {
        let before = netlink_bytes(&fs::read_to_string("/proc/self/net/netlink").unwrap());
        let socket =
            rustix::net::socket(rustix::net::AddressFamily::NETLINK, rustix::net::SocketType::RAW, None);
        let socket = socket.unwrap();
        // An unknown request, which is returned with an error.
        let mut message = vec![0_u8; 40_000];
        message[..4].copy_from_slice(&40_000_u32.to_ne_bytes());
        message[4..6].copy_from_slice(&4095_u16.to_ne_bytes());
        message[6..8].copy_from_slice(&5_u16.to_ne_bytes());
        for _ in 0..3 {
            rustix::net::send(&socket, &message, rustix::net::SendFlags::DONTWAIT).unwrap();
        }
        let after = netlink_bytes(&fs::read_to_string("/proc/self/net/netlink").unwrap());
        assert!(after >= before + 80_000, "{before} {after}");
        drop(socket);
    }
}
