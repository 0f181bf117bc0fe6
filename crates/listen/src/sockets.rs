//! Listening sockets and their options. Called at start; a failure leaves nothing behind.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted.
const BACKLOG: u32 = 1024;
/// What the kernel holds for a client that does not read. Without a bound it grows to megabytes for each; with this one a
/// stream still carries 10 MB a second over 20 ms.
const SEND_BUFFER_BYTES: usize = 208 * 1024;
/// A peer that vanished without a word is noticed after about this and three probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another address or end the program that holds it")]
pub struct BindError {
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Listens on an address. Needs a tokio runtime around it.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| BindError { address, source })
}

/// What every connection inherits from its listening socket. Done here too for listeners that came from elsewhere.
pub(crate) fn tune(listener: &TcpListener, write_timeout: Duration) -> io::Result<()> {
    sockopt::set_tcp_nodelay(listener, true)?;
    sockopt::set_socket_send_buffer_size(listener, SEND_BUFFER_BYTES)?;
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_EVERY)?;
    sockopt::set_tcp_keepcnt(listener, 3)?;
    let timeout_ms = u32::try_from(write_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(listener, timeout_ms)?;
    Ok(())
}

/// Lets this process open as many files as its hard limit allows, and says how many that is. Each connection takes one; a shell
/// gives 1,024.
pub fn raise_file_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let first = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap();
        let error = bind(address).unwrap_err().to_string();
        assert!(error.contains(&address.to_string()) && error.contains("in use"), "{error}");
    }

    #[tokio::test]
    async fn connections_inherit_the_options() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        tune(&listener, Duration::from_secs(60)).unwrap();
        let client = tokio::net::TcpStream::connect(listener.local_addr().unwrap());
        let (accepted, _client) = tokio::join!(listener.accept(), client);
        let accepted = accepted.unwrap().0;
        assert!(sockopt::tcp_nodelay(&accepted).unwrap() && sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 60_000);
        assert!(sockopt::socket_send_buffer_size(&accepted).unwrap() <= 2 * SEND_BUFFER_BYTES);
    }

    #[test]
    fn the_file_limit_becomes_the_hard_one() {
        let limit = raise_file_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), limit);
    }
}
