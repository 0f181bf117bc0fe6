//! Notifications of the kernel over netlink.

use std::io;

use netlink::DATAGRAM_BYTES;
use netlink_sys::Socket;
use tokio::io::unix::AsyncFd;

/// Notifications of the kernel, one datagram at a time.
pub struct Notifications {
    socket: AsyncFd<Socket>,
    buffer: Vec<u8>,
}

impl Notifications {
    /// Takes a socket that has subscribed to notifications.
    pub fn of(socket: Socket) -> io::Result<Self> {
        socket.set_non_blocking(true)?;
        Ok(Self { socket: register(socket)?, buffer: Vec::new() })
    }

    /// The next datagram; an error means that notifications were lost. `None` if the socket fails.
    pub async fn next(&mut self) -> Option<io::Result<&[u8]>> {
        loop {
            let mut ready = self.socket.readable().await.ok()?;
            self.buffer.clear();
            self.buffer.reserve(DATAGRAM_BYTES);
            if let Ok(received) = ready.try_io(|socket| socket.get_ref().recv(&mut self.buffer, 0)) {
                return Some(received.map(|length| &self.buffer[..length]));
            }
        }
    }

    /// Discards pending notifications.
    pub fn drain(&mut self) {
        loop {
            self.buffer.clear();
            self.buffer.reserve(DATAGRAM_BYTES);
            if self.socket.get_ref().recv(&mut self.buffer, 0).is_err() {
                return;
            }
        }
    }
}

/// Registers a non-blocking socket with the runtime.
#[expect(unsafe_code, reason = "tokio requires that the descriptor stays open")]
fn register(socket: Socket) -> io::Result<AsyncFd<Socket>> {
    // SAFETY: a `Socket` owns its descriptor and closes it only on drop; the `AsyncFd` deregisters it before it drops
    // it.
    unsafe { AsyncFd::register(socket) }.map_err(io::Error::from)
}
