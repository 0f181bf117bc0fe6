//! Clears up after sandboxes that are gone, behind their backs: their links, which as a rule go with their namespaces, and the
//! connections that the kernel still knows, which the next sandbox with the same address must not inherit.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connections;
use crate::kernel::Kernel;
use crate::links;

/// A sandbox's namespace and its link with it are gone by then; if not, the link is removed.
const GRACE: Duration = Duration::from_millis(300);

/// What to clear up.
pub struct Swept {
    pub link: String,
    /// 0 where there was none. The next sandbox's link may have the same name, and not the same index.
    pub index: u32,
    pub address: Ipv4Addr,
}

/// Addresses of which the kernel may still know connections.
#[derive(Default)]
pub struct Unclean(Mutex<HashSet<Ipv4Addr>>);

impl Unclean {
    pub fn note(&self, address: Ipv4Addr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(address);
    }

    /// Has the kernel forget the connections of an address that was noted, and of none else.
    pub fn clean(&self, address: Ipv4Addr) {
        // Held meanwhile: who else wants the address clean waits until it is.
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.remove(&address)
            && let Err(error) = connections::forget(address)
        {
            tracing::debug!(%error, %address, "connections of a sandbox that is gone stay until they time out");
        }
    }
}

/// Runs until `stop`; what is still waiting then is cleared up at the next start.
pub async fn run(
    kernel: Arc<Kernel>,
    unclean: Arc<Unclean>,
    mut orders: mpsc::UnboundedReceiver<Swept>,
    stop: CancellationToken,
) {
    loop {
        let mut some = Vec::new();
        tokio::select! {
            count = orders.recv_many(&mut some, 1024) => if count == 0 { return },
            () = stop.cancelled() => return,
        }
        let (kernel, unclean) = (Arc::clone(&kernel), Arc::clone(&unclean));
        let cleaned = tokio::task::spawn_blocking(move || {
            some.iter().for_each(|swept| unclean.clean(swept.address));
            some
        });
        let Ok(some) = cleaned.await else { return };
        tokio::select! {
            () = tokio::time::sleep(GRACE) => {}
            () = stop.cancelled() => return,
        }
        let removed =
            tokio::task::spawn_blocking(move || some.iter().for_each(|swept| remove(&kernel, swept)));
        if removed.await.is_err() {
            return;
        }
    }
}

fn remove(kernel: &Kernel, swept: &Swept) {
    if swept.index == 0 {
        return;
    }
    if let Err(error) = links::remove_exactly(&kernel.links, swept.index, &swept.link) {
        tracing::warn!(%error, link = swept.link, "the link of a sandbox that is gone cannot be removed");
    }
}
