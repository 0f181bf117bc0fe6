//! The link between the daemon and the agent of a sandbox whose backend has a network stack of its own, such as gVisor.
//!
//! ```text
//! network namespace of the sandbox on the host
//!   eth0                                     taken by the stack inside
//!   control0 <---- veth ----> host0          control0 is taken too; the host's stack keeps host0
//! ```
//!
//! The daemon listens on the address of `host0`, and the agent connects to it by TCP. No socket of the host is reachable from
//! inside: while such a socket is connected, gVisor cannot store a sandbox. The host's stack in the namespace has only that address and
//! a route to `control0`, and does not forward, so what a process inside sends over this link reaches only the daemon's socket. All sandboxes have the same two addresses,
//! each in its own namespace, and a sandbox that is restored elsewhere keeps them.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::thread;

use netlink::links::{self, Wire};
use netlink::{RouteSocket, routes};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cgroup::Cgroups;
use crate::paths::{Paths, first_process};

/// The ends of the link, as the sandbox and the host name them.
const INSIDE: &str = "control0";
const OUTSIDE: &str = "host0";
const INSIDE_MAC: [u8; 6] = [0x02, 0x73, 0x62, 0, 0, 2];
const INSIDE_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 83, 2);
const HOST_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 83, 1);
/// Where the daemon listens.
pub const HOST_SOCKET: SocketAddrV4 = SocketAddrV4::new(HOST_ADDRESS, 7083);

/// Adds the link to the network namespace of this thread. The stack of the sandbox takes the end that has an address.
pub fn add() -> io::Result<()> {
    // Otherwise the host's stack could forward between the two links.
    fs::write("/proc/sys/net/ipv4/ip_forward", "0")?;
    let socket = RouteSocket::open()?;
    let namespace = File::open("/proc/thread-self/ns/net")?;
    let wire = Wire { name: OUTSIDE, far_name: INSIDE, far_mac: INSIDE_MAC };
    links::add_wire(&socket, &wire, namespace.as_fd())?;
    for name in ["lo", OUTSIDE, INSIDE] {
        let index = index_of(&socket, name)?;
        if name != "lo" {
            // Fails on a kernel without IPv6, which needs no change.
            let _ = links::without_ipv6_address(&socket, index);
        }
        links::up(&socket, index)?;
    }
    let inside = index_of(&socket, INSIDE)?;
    links::set_address(&socket, inside, INSIDE_ADDRESS)?;
    links::set_neighbour(&socket, inside, HOST_ADDRESS, links::HOST_MAC)?;
    routes::add_host(&socket, HOST_ADDRESS, inside)
}

/// Gives the host's end its address. The namespace is that of this thread, and the sandbox's stack has taken the other end: before,
/// it would take this one too.
pub fn open() -> io::Result<()> {
    let socket = RouteSocket::open()?;
    let outside = index_of(&socket, OUTSIDE)?;
    links::set_address(&socket, outside, HOST_ADDRESS)?;
    links::set_neighbour(&socket, outside, INSIDE_ADDRESS, INSIDE_MAC)?;
    routes::add_host(&socket, INSIDE_ADDRESS, outside)
}

fn index_of(socket: &RouteSocket, name: &str) -> io::Result<u32> {
    let link = links::find(socket, name)?;
    link.map(|link| link.index).ok_or_else(|| io::Error::other(format!("there is no link {name}")))
}

/// Listens at the host's end of a sandbox's link. Returns a descriptor of the process with the other end, too: when that ends, nothing
/// closes its connections. Blocks.
pub fn listen(cgroups: &Cgroups, name: &str, paths: &Paths) -> io::Result<(TcpListener, OwnedFd)> {
    let (namespace, process) = stack_of(cgroups, name, paths)?;
    // On a thread of its own, which ends in that namespace: a socket belongs to the namespace in which it was opened.
    let listening = thread::Builder::new().name("listen".to_owned()).spawn(move || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        let listener = TcpListener::bind(HOST_SOCKET)?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    })?;
    let listener =
        listening.join().unwrap_or_else(|_| Err(io::Error::other("the listening thread panicked")))?;
    Ok((listener, process))
}

/// The process with the sandbox's network stack, and its network namespace on the host.
fn stack_of(cgroups: &Cgroups, name: &str, paths: &Paths) -> io::Result<(File, OwnedFd)> {
    let gone = || io::Error::new(io::ErrorKind::ConnectionRefused, "no process is left in the sandbox");
    let pid = first_process(paths).ok_or_else(gone)?;
    let process =
        pidfd_open(Pid::from_raw(pid).ok_or_else(gone)?, PidfdFlags::empty()).map_err(|_| gone())?;
    let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(|_| gone())?;
    // Checked afterwards: a process that is in the cgroup now had the pid before, too.
    if cgroups.processes(name)?.contains(&pid) { Ok((namespace, process)) } else { Err(gone()) }
}
