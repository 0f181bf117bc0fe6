//! Notices when somebody removes our rules, as a flush of the host's whole rule set does, or changes what our sets hold, and has
//! both restored at once.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use tokio_util::sync::CancellationToken;

use crate::netlink::News;

const GROUP_NFTABLES: u32 = 7;
/// Of a flush, all messages have come by then.
const SETTLED: Duration = Duration::from_millis(2);
/// Before another try, if the rules cannot be put back.
const RETRY: Duration = Duration::from_millis(500);

/// Puts the rules back if they are not what they were. Says whether it did.
pub type Mend = Arc<dyn Fn() -> io::Result<bool> + Send + Sync>;

/// What is watched: a table, and who may change what its sets hold.
#[derive(Debug, Clone)]
pub struct Watched {
    pub table: String,
    /// The kernel's number of our socket.
    pub ours: u32,
}

/// Listens until `stop`.
pub async fn run(watched: Watched, mend: Mend, stop: CancellationToken) {
    let mut news = match open() {
        Ok(news) => news,
        Err(error) => {
            tracing::warn!(%error, "rules that somebody removes will not be put back before the next start");
            return;
        }
    };
    while let Some(Some(datagram)) = stop.run_until_cancelled(news.next()).await {
        // An error: more came than was read, and it may have been among it.
        if datagram.map_or(true, |datagram| watched.is_harmed_by(datagram)) {
            restore(&mend, &mut news, &stop).await;
        }
    }
}

async fn restore(mend: &Mend, news: &mut News, stop: &CancellationToken) {
    loop {
        let now = Arc::clone(mend);
        match tokio::task::spawn_blocking(move || now()).await {
            Ok(Ok(true)) => {
                tracing::warn!("somebody changed the rules of the sandboxes' network; they are as they were");
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
        news.drain();
        // What came meanwhile is drained unread: it is looked at once more.
        let again = Arc::clone(mend);
        if !matches!(tokio::task::spawn_blocking(move || again()).await, Ok(Ok(true))) {
            return;
        }
    }
}

fn open() -> io::Result<News> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.add_membership(GROUP_NFTABLES)?;
    News::of(socket)
}

impl Watched {
    /// Whether any message is about a table, a chain, a rule or a set that goes, of whatever table, which is soon found out; or
    /// about elements of our sets that somebody else has changed.
    fn is_harmed_by(&self, datagram: &[u8]) -> bool {
        // DELTABLE, DELCHAIN, DELRULE, DELSET of subsystem nftables.
        const GOES: [u16; 4] = [0x0a02, 0x0a05, 0x0a08, 0x0a0b];
        // NEWSETELEM, DELSETELEM.
        const ELEMENTS: [u16; 2] = [0x0a0c, 0x0a0e];
        let mut rest = datagram;
        while let Some((head, _)) = rest.split_first_chunk::<16>() {
            let [a, b, c, d, kind_low, kind_high, ..] = *head;
            let [.., e, f, g, h] = *head;
            let length = (u32::from_ne_bytes([a, b, c, d]) as usize).min(rest.len());
            let kind = u16::from_ne_bytes([kind_low, kind_high]);
            let is_ours = u32::from_ne_bytes([e, f, g, h]) == self.ours;
            if GOES.contains(&kind)
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
    fn a_rule_that_goes_is_noticed_among_elements_and_so_are_elements_of_ours() {
        let watched = Watched { table: "sandboxd_1".to_owned(), ours: 7 };
        let harms = |messages: &[Vec<u8>]| watched.is_harmed_by(&messages.concat());
        let ours = message(0x0a0e, 7, "sandboxd_1");
        assert!(harms(&[ours.clone(), message(0x0a08, 9, "other")]));
        assert!(harms(&[ours.clone(), message(0x0a0e, 9, "sandboxd_1")]));
        assert!(harms(&[ours.clone(), message(0x0a0c, 9, "sandboxd_1")]));
        assert!(!harms(&[ours, message(0x0a0e, 9, "other"), message(0x0a0f, 9, "sandboxd_1")]));
        assert!(!harms(&[vec![0; 40]]));
        assert!(!harms(&[]));
    }
}
