//! Restores the firewall table when another program removes its rules, for instance with `nft flush ruleset`, or
//! changes the elements of its sets. The kernel sends notifications of such changes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use tokio_util::sync::CancellationToken;

use crate::firewall::Firewall;
use crate::kernel::Kernel;
use crate::notifications::Notifications;

const GROUP_NFTABLES: u32 = 7;
/// All announcements of one flush have arrived after this time.
const SETTLE_TIME: Duration = Duration::from_millis(2);
/// Pause before the next try if the rules cannot be restored.
const RETRY: Duration = Duration::from_millis(500);

/// What to watch: a table, and the daemon's socket, whose changes are ignored.
#[derive(Debug, Clone)]
pub struct Watched {
    pub table: String,
    /// The kernel's port number of the daemon's socket.
    pub ours: u32,
}

/// Watches until `stop`.
pub async fn run(watched: Watched, kernel: Arc<Kernel>, stop: CancellationToken) {
    let mut notifications = match open() {
        Ok(notifications) => notifications,
        Err(error) => {
            tracing::warn!(%error, "cannot watch the firewall; rules that another program removes are not restored until a restart");
            return;
        }
    };
    while let Some(Some(datagram)) = stop.run_until_cancelled(notifications.next()).await {
        // An error means that notifications were lost.
        if datagram.map_or(true, |datagram| watched.needs_restore(datagram)) {
            restore(&kernel, &mut notifications, &stop).await;
        }
    }
}

async fn restore(kernel: &Kernel, notifications: &mut Notifications, stop: &CancellationToken) {
    loop {
        match repair(kernel).await {
            Ok(true) => {
                tracing::warn!("another program changed the firewall table of the sandboxes; it is restored");
            }
            Ok(false) => {}
            Err(error) => {
                tracing::error!(%error, "cannot restore the firewall table of the sandboxes; trying again");
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => continue,
                    () = stop.cancelled() => return,
                }
            }
        }
        tokio::time::sleep(SETTLE_TIME).await;
        notifications.drain();
        // The drained notifications were not read, so the table is compared again. A comparison fails if the table changes meanwhile.
        if let Ok(false) = repair(kernel).await {
            return;
        }
    }
}

async fn repair(kernel: &Kernel) -> io::Result<bool> {
    kernel.firewall.call("restore the firewall table", Firewall::repair).await
}

fn open() -> io::Result<Notifications> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.add_membership(GROUP_NFTABLES)?;
    Notifications::of(socket)
}

impl Watched {
    /// Whether a message announces the removal of a table, chain, rule or set, of any table (a comparison tells whether it was
    /// ours), or a change of our sets' elements by another socket.
    fn needs_restore(&self, datagram: &[u8]) -> bool {
        // DELTABLE, DELCHAIN, DELRULE, DELSET of subsystem nftables.
        const REMOVALS: [u16; 4] = [0x0a02, 0x0a05, 0x0a08, 0x0a0b];
        // NEWSETELEM, DELSETELEM.
        const ELEMENTS: [u16; 2] = [0x0a0c, 0x0a0e];
        let mut rest = datagram;
        while let Some((head, _)) = rest.split_first_chunk::<16>() {
            let [a, b, c, d, kind_low, kind_high, ..] = *head;
            let [.., e, f, g, h] = *head;
            let length = (u32::from_ne_bytes([a, b, c, d]) as usize).min(rest.len());
            let kind = u16::from_ne_bytes([kind_low, kind_high]);
            let is_ours = u32::from_ne_bytes([e, f, g, h]) == self.ours;
            if REMOVALS.contains(&kind)
                || ELEMENTS.contains(&kind) && !is_ours && self.is_named_in(&rest[..length])
            {
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

    fn is_named_in(&self, message: &[u8]) -> bool {
        message.windows(self.table.len()).any(|part| part == self.table.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, from: u32, table: &str) -> Vec<u8> {
        let length = (16 + table.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(12, 0);
        bytes.extend(from.to_ne_bytes());
        bytes.extend(table.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn removed_rules_and_foreign_changes_of_own_elements_are_noticed() {
        let watched = Watched { table: "sandboxd_1".to_owned(), ours: 7 };
        let needs_restore = |messages: &[Vec<u8>]| watched.needs_restore(&messages.concat());
        let ours = message(0x0a0e, 7, "sandboxd_1");
        assert!(needs_restore(&[ours.clone(), message(0x0a08, 9, "other")]));
        assert!(needs_restore(&[ours.clone(), message(0x0a0e, 9, "sandboxd_1")]));
        assert!(needs_restore(&[ours.clone(), message(0x0a0c, 9, "sandboxd_1")]));
        assert!(!needs_restore(&[ours, message(0x0a0e, 9, "other"), message(0x0a0f, 9, "sandboxd_1")]));
        assert!(!needs_restore(&[vec![0; 40]]));
        assert!(!needs_restore(&[]));
    }
}
