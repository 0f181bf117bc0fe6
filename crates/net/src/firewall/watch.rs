//! Notices when somebody removes our rules, as a flush of the host's whole rule set does, and has them restored at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use tokio::io::unix::AsyncFd;
use tokio_util::sync::CancellationToken;

use crate::netlink::{DATAGRAM_BYTES, wakes};

const GROUP_NFTABLES: u32 = 7;
/// Of a flush, all messages have come by then.
const SETTLED: Duration = Duration::from_millis(2);
/// Before another try, if the rules cannot be put back.
const RETRY: Duration = Duration::from_millis(500);

/// Puts the rules back if they are not what they were. Says whether it did.
pub type Mend = Arc<dyn Fn() -> io::Result<bool> + Send + Sync>;

/// Listens until `stop`.
pub async fn run(mend: Mend, stop: CancellationToken) {
    let socket = match open() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "rules that somebody removes will not be put back before the next start");
            return;
        }
    };
    let mut buffer = Vec::new();
    loop {
        let ready = tokio::select! {
            ready = socket.readable() => ready,
            () = stop.cancelled() => return,
        };
        let Ok(mut ready) = ready else { return };
        buffer.clear();
        buffer.reserve(DATAGRAM_BYTES);
        let removed = match ready.try_io(|socket| socket.get_ref().recv(&mut buffer, 0)) {
            Ok(Ok(length)) => removes_rules(&buffer[..length]),
            // More came than was read: it may have been among it.
            Ok(Err(_)) => true,
            Err(_) => false,
        };
        if removed {
            drop(ready);
            restore(&mend, &socket, &stop).await;
        }
    }
}

async fn restore(mend: &Mend, socket: &AsyncFd<Socket>, stop: &CancellationToken) {
    loop {
        let now = Arc::clone(mend);
        match tokio::task::spawn_blocking(move || now()).await {
            Ok(Ok(true)) => {
                tracing::warn!("somebody removed the rules of the sandboxes' network; they are back");
            }
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "the rules of the sandboxes' network are gone and cannot be put back");
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => continue,
                    () = stop.cancelled() => return,
                }
            }
            Err(_) => return,
        }
        tokio::time::sleep(SETTLED).await;
        drain(socket);
        // What came meanwhile is drained unread: it is looked at once more.
        let again = Arc::clone(mend);
        if !matches!(tokio::task::spawn_blocking(move || again()).await, Ok(Ok(true))) {
            return;
        }
    }
}

fn drain(socket: &AsyncFd<Socket>) {
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        buffer.reserve(DATAGRAM_BYTES);
        if socket.get_ref().recv(&mut buffer, 0).is_err() {
            return;
        }
    }
}

fn open() -> io::Result<AsyncFd<Socket>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.add_membership(GROUP_NFTABLES)?;
    socket.set_non_blocking(true)?;
    wakes(socket)
}

/// Whether any message is about a table, a chain, a rule or a set that goes, of whatever table: elements come and go all the
/// time, and which table it was is soon found out.
fn removes_rules(datagram: &[u8]) -> bool {
    // DELTABLE, DELCHAIN, DELRULE, DELSET of subsystem nftables.
    const KINDS: [u16; 4] = [0x0a02, 0x0a05, 0x0a08, 0x0a0b];
    let mut rest = datagram;
    while let Some((head, _)) = rest.split_first_chunk::<6>() {
        let length = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if KINDS.contains(&u16::from_ne_bytes([head[4], head[5]])) {
            return true;
        }
        let step = length.next_multiple_of(4);
        if step == 0 || step > rest.len() {
            return false;
        }
        rest = &rest[step..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16) -> Vec<u8> {
        let mut bytes = 20_u32.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(20, 0);
        bytes
    }

    #[test]
    fn a_rule_that_goes_is_noticed_among_elements() {
        assert!(removes_rules(&[message(0x0a0e), message(0x0a08)].concat()));
        assert!(!removes_rules(&[message(0x0a0e), message(0x0a0c), message(0x0a0f)].concat()));
        assert!(!removes_rules(&[0; 40]));
        assert!(!removes_rules(&[]));
    }
}
