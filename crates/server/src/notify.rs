//! Service notifications for systemd: one datagram to the socket in `NOTIFY_SOCKET`. Called by `serve`.
//!
//! Without the variable nothing is sent. A failed notification is only logged: systemd reports the timeout itself.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service accepts requests.
pub const READY: &str = "READY=1";
/// The service is shutting down.
pub const STOPPING: &str = "STOPPING=1";

pub fn notify(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty())
        && let Err(error) = send(&socket, state)
    {
        tracing::warn!(?socket, %error, "cannot notify systemd");
    }
}

/// A name that begins with `@` is an abstract socket.
fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A full socket must not block the service.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    }

    #[test]
    fn a_path_and_an_abstract_name_both_hear_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), READY).unwrap();
        assert_eq!(received(&listener), "READY=1");

        let name = format!("sandboxd-test-{}", std::process::id());
        let listener =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), STOPPING).unwrap();
        assert_eq!(received(&listener), "STOPPING=1");
    }

    #[test]
    fn a_missing_socket_is_an_error() {
        assert!(send(OsStr::new("/nonexistent/socket"), READY).is_err());
    }
}
