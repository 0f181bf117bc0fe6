//! Connects a sandbox's network namespace with the host's, by a veth pair with one neighbour at each end.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use netlink::links::{self, HOST_MAC, Wire};
use netlink::routes;
use netlink::{RouteSocket, is_present};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The name of the link inside.
const INSIDE: &str = "eth0";
const CARRIER_TIMEOUT: Duration = Duration::from_millis(200);
const CARRIER_CHECK_INTERVAL: Duration = Duration::from_micros(100);

/// Both ends of a link.
pub struct Ends<'a> {
    pub link: &'a str,
    pub address: Ipv4Addr,
    pub gateway: Ipv4Addr,
}

impl Ends<'_> {
    /// Derived from the address, so that no two sandboxes share one.
    fn mac(&self) -> [u8; 6] {
        let [a, b, c, d] = self.address.octets();
        [0x02, 0x73, a, b, c, d]
    }
}

/// Creates the link. A link of an earlier start is removed. A failure leaves no link behind. The calling thread is in the
/// namespace of `home` when this returns.
pub fn plug(ends: &Ends<'_>, home: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let host = RouteSocket::open()?;
    let wire = Wire { name: ends.link, far_name: INSIDE, far_mac: ends.mac() };
    match links::add_wire(&host, &wire, namespace) {
        Err(error) if is_present(&error) => {
            links::remove(&host, ends.link)?;
            links::add_wire(&host, &wire, namespace)?;
        }
        done => done?,
    }
    let done = outside(&host, ends)
        .and_then(|()| inside(ends, home, namespace))
        .and_then(|()| wait_for_carrier(&host, ends.link));
    if done.is_err() {
        links::remove(&host, ends.link)?;
    }
    done
}

/// Waits until the host's end has a carrier. Before that, the first packets are lost, and a client retransmits only after a
/// second.
fn wait_for_carrier(host: &RouteSocket, link: &str) -> io::Result<()> {
    let since = Instant::now();
    while since.elapsed() < CARRIER_TIMEOUT {
        if links::find(host, link)?.is_none_or(|link| link.carries) {
            return Ok(());
        }
        std::thread::sleep(CARRIER_CHECK_INTERVAL);
    }
    tracing::warn!(link, "the link has no carrier yet; the first packets of the sandbox may be lost");
    Ok(())
}

fn outside(host: &RouteSocket, ends: &Ends<'_>) -> io::Result<()> {
    let index = links::find(host, ends.link)?.ok_or(io::ErrorKind::NotFound)?.index;
    links::without_ipv6(ends.link)?;
    links::set_neighbour(host, index, ends.address, ends.mac())?;
    links::up(host, index)?;
    routes::add_host(host, ends.address, index)
}

fn inside(ends: &Ends<'_>, home: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let socket = socket_in(home, namespace)?;
    if let Some(loopback) = links::find(&socket, "lo")? {
        links::up(&socket, loopback.index)?;
    }
    let index = links::find(&socket, INSIDE)?.ok_or(io::ErrorKind::NotFound)?.index;
    match links::without_ipv6_address(&socket, index) {
        // The kernel has no IPv6.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => {}
        done => done?,
    }
    links::set_address(&socket, index, ends.address)?;
    links::set_neighbour(&socket, index, ends.gateway, HOST_MAC)?;
    links::up(&socket, index)?;
    routes::add_default(&socket, ends.gateway, index)
}

/// A socket belongs to the namespace in which it was opened, whichever thread uses it.
fn socket_in(home: BorrowedFd<'_>, namespace: BorrowedFd<'_>) -> io::Result<RouteSocket> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    let socket = RouteSocket::open();
    // Fails if the thread cannot return: otherwise it would apply changes for the host to the sandbox.
    move_into_link_name_space(home, Some(LinkNameSpaceType::Network))?;
    socket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_a_link_is_local_and_of_one_sandbox() {
        let mac = |address: [u8; 4]| {
            Ends { link: "l", address: address.into(), gateway: Ipv4Addr::LOCALHOST }.mac()
        };
        let (one, other) = (mac([10, 64, 0, 2]), mac([10, 64, 1, 2]));
        assert_eq!(one, [0x02, 0x73, 10, 64, 0, 2]);
        assert_ne!(one, other);
        assert_ne!(one, HOST_MAC);
        // Locally administered, and of one receiver.
        assert_eq!(one[0] & 0b11, 0b10);
    }
}
