//! Listening sockets and their options.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpSocket};

/// The backlog of connections that are not accepted yet.
const BACKLOG: u32 = 1024;
/// The kernel's send buffer of a connection. The default grows to megabytes for a client that does not read; this size still
/// carries 10 MB/s at a round trip of 20 ms.
const SEND_BUFFER_BYTES: usize = 208 * 1024;
/// A lost peer is detected after this time and three probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Why listening on an address failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; choose another address or end the program that uses it")]
pub struct BindError {
    pub address: SocketAddr,
    pub source: io::Error,
}

/// Listens on an address. The caller runs inside a tokio runtime.
pub fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| BindError { address, source })
}

/// Sets the options that connections inherit from their listening socket, also on sockets that the caller created.
pub(crate) fn tune(listener: &TcpListener, write_timeout: Duration) -> io::Result<()> {
    sockopt::set_tcp_nodelay(listener, true)?;
    sockopt::set_socket_send_buffer_size(listener, SEND_BUFFER_BYTES)?;
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(listener, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(listener, 3)?;
    let timeout_ms = u32::try_from(write_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(listener, timeout_ms)?;
    Ok(())
}

/// Raises the limit of open files to the hard limit and returns it. Each connection needs a file, and the usual soft limit is 1,024.
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
    fn the_file_limit_is_raised_to_the_hard_limit() {
        let limit = raise_file_limit().unwrap();
        assert_eq!(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), limit);
    }
}
