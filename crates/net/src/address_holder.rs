//! Finds the process that listens on an address that cannot be bound, for the error message. Reads `/proc`.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The end of the error message.
pub fn explain(wanted: SocketAddrV4) -> String {
    let Some((holder, at)) = holder(wanted) else { return String::new() };
    let all = if at.is_unspecified() { ", which is every address of this host" } else { "" };
    format!(
        "; {holder} listens on {at}:{}{all}; configure it to listen only on the addresses that it serves",
        wanted.port()
    )
}

/// A process and the address that it listens on.
fn holder(wanted: SocketAddrV4) -> Option<(String, Ipv4Addr)> {
    ["udp", "tcp"].into_iter().find_map(|table| {
        let text = fs::read_to_string(format!("/proc/net/{table}")).ok()?;
        let (inode, at) = text.lines().skip(1).find_map(|line| listener(line, wanted))?;
        Some((process_of(&inode).unwrap_or_else(|| "another program".to_owned()), at))
    })
}

/// The inode of the socket in a line of `/proc/net`, if it conflicts.
fn listener(line: &str, wanted: SocketAddrV4) -> Option<(String, Ipv4Addr)> {
    let mut words = line.split_whitespace();
    let (address, port) = words.nth(1)?.split_once(':')?;
    let at = Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.to_ne_bytes());
    let is_there = u16::from_str_radix(port, 16).ok()? == wanted.port();
    // 0A: a listening TCP socket; 07: an unconnected UDP socket.
    let listens = matches!(words.nth(1)?, "0A" | "07");
    let inode = words.nth(5)?.to_owned();
    (is_there && listens && (at.is_unspecified() || at == *wanted.ip())).then_some((inode, at))
}

fn process_of(inode: &str) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit()).find_map(|entry| {
        let held = fs::read_dir(entry.path().join("fd")).ok()?.flatten();
        held.filter_map(|fd| fs::read_link(fd.path()).ok())
            .find(|link| link.as_os_str() == socket.as_str())?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        Some(format!("{} (process {})", name.trim(), entry.file_name().display()))
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn the_process_that_holds_the_address_is_named() {
        let held_socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        let port = held_socket.local_addr().unwrap().port();
        let message = explain(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 9), port));
        let us = format!("(process {}) listens on 0.0.0.0:{port}, which is every", std::process::id());
        assert!(message.contains(&us), "{message}");
        drop(held_socket);
        assert_eq!(explain(SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 9), port)), "");
    }
}
