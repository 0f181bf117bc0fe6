//! Netlink requests about routes and links. Blocking: the kernel answers before `send` returns.

use std::cell::RefCell;
use std::io;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;

/// Maximum size of a datagram of a dump.
pub const DATAGRAM_BYTES: usize = 64 * 1024;

/// A socket to the network namespace that it was opened in. Calls block until the kernel has answered. It is not `Sync`: one
/// thread uses it.
pub struct RouteSocket {
    socket: RefCell<SocketState>,
}

struct SocketState {
    socket: Socket,
    sequence: u32,
    buffer: Vec<u8>,
}

impl RouteSocket {
    /// A socket in the network namespace of the calling thread, which it keeps.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        let inner = SocketState { socket, sequence: 0, buffer: Vec::new() };
        Ok(Self { socket: RefCell::new(inner) })
    }

    /// Requests a change. `flags` are added to those of every request.
    pub fn change(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.exchange(message, flags | NLM_F_ACK).map(drop)
    }

    /// Requests all objects of a kind.
    pub fn dump(&self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.exchange(message, NLM_F_DUMP)
    }

    /// Requests one object.
    pub fn get(&self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.exchange(message, 0)?.pop().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn exchange(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.socket.borrow_mut().exchange(message, flags)
    }
}

impl SocketState {
    fn exchange(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        self.buffer.resize(request.buffer_len(), 0);
        request.serialize(&mut self.buffer);
        self.socket.send(&self.buffer, 0)?;
        self.answers()
    }

    fn answers(&mut self) -> io::Result<Vec<RouteNetlinkMessage>> {
        let mut found = Vec::new();
        loop {
            self.buffer.clear();
            self.buffer.reserve(DATAGRAM_BYTES);
            let length = self.socket.recv(&mut self.buffer, 0)?;
            let mut rest = &self.buffer[..length];
            while !rest.is_empty() {
                let answer =
                    NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
                let step = (answer.header.length as usize).next_multiple_of(4).clamp(1, rest.len());
                rest = &rest[step..];
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                let many = answer.header.flags & netlink_packet_core::NLM_F_MULTIPART != 0;
                match answer.payload {
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(found),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    _ => {}
                }
                if !many {
                    return Ok(found);
                }
            }
        }
    }
}

/// Whether an error means that the link, route or address does not exist.
pub fn is_absent(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::NODEV, Errno::NOENT, Errno::SRCH, Errno::ADDRNOTAVAIL]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether an error means that the object exists.
pub fn is_present(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::EXIST.raw_os_error())
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn error(errno: Errno) -> io::Error {
        io::Error::from_raw_os_error(errno.raw_os_error())
    }

    #[test]
    fn errors_tell_what_is_absent_and_what_is_there() {
        for absent in [Errno::NODEV, Errno::NOENT, Errno::SRCH, Errno::ADDRNOTAVAIL] {
            assert!(is_absent(&error(absent)) && !is_present(&error(absent)), "{absent:?}");
        }
        assert!(is_present(&error(Errno::EXIST)) && !is_absent(&error(Errno::EXIST)));
        for other in [Errno::PERM, Errno::BUSY, Errno::NETDOWN] {
            assert!(!is_absent(&error(other)) && !is_present(&error(other)), "{other:?}");
        }
        // Of the program, not of the kernel.
        assert!(
            !is_absent(&io::ErrorKind::NotFound.into()) && !is_present(&io::ErrorKind::AlreadyExists.into())
        );
    }
}
