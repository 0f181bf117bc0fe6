//! Cleans up after sandboxes that are gone, in the background: links, which usually disappear with their namespaces, and
//! tracked connections, which the next sandbox with the same address must not inherit.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connections;
use crate::kernel::Kernel;
use crate::links;

/// A sandbox's namespace, and with it the link, is usually gone after this time. A link that is left is removed.
const GRACE: Duration = Duration::from_millis(300);

/// What to clean up.
pub struct Swept {
    pub link: String,
    /// 0 if there was no link. The next sandbox's link can have the same name but not the same index.
    pub index: u32,
    pub address: Ipv4Addr,
}

/// Addresses whose connections the kernel may still track.
#[derive(Default)]
pub struct Unclean(Mutex<HashMap<Ipv4Addr, Arc<Mutex<IsClean>>>>);

/// Whether the kernel has forgotten the connections of one address.
type IsClean = bool;

impl Unclean {
    pub fn note(&self, address: Ipv4Addr) {
        self.all().insert(address, Arc::default());
    }

    /// Has the kernel forget the connections of an address, if it was noted. Blocks; waits for another thread that is cleaning
    /// the same address. The lock of the map is not held meanwhile, so [`Self::note`] does not wait.
    pub fn clean(&self, address: Ipv4Addr) {
        let Some(state) = self.all().get(&address).cloned() else { return };
        let mut is_clean = state.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_clean {
            if let Err(error) = connections::forget(address) {
                tracing::debug!(%error, %address, "connections of a sandbox that is gone stay until they time out");
            }
            *is_clean = true;
        }
        let mut all = self.all();
        if all.get(&address).is_some_and(|current| Arc::ptr_eq(current, &state)) {
            all.remove(&address);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Arc<Mutex<IsClean>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until `stop`. The next start of the daemon cleans up what is still queued then.
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
        let unclean = Arc::clone(&unclean);
        let cleaned = tokio::task::spawn_blocking(move || {
            some.iter().for_each(|swept| unclean.clean(swept.address));
            some
        });
        let Ok(some) = cleaned.await else { return };
        tokio::select! {
            () = tokio::time::sleep(GRACE) => {}
            () = stop.cancelled() => return,
        }
        for swept in some {
            remove(&kernel, swept).await;
        }
    }
}

/// One request for each link, so that requests of others run in between.
async fn remove(kernel: &Kernel, swept: Swept) {
    let Swept { link, index, .. } = swept;
    if index == 0 {
        return;
    }
    let name = link.clone();
    let removed: io::Result<()> =
        kernel.links.call("remove a link", move |socket| links::remove_exactly(socket, index, &name)).await;
    if let Err(error) = removed {
        tracing::warn!(%error, link, "cannot remove the link of a sandbox that is gone");
    }
}
