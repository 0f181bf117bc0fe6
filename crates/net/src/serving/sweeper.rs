//! Cleans up after removed sandboxes in the background: links, which usually disappear with their namespaces, and
//! tracked connections, which the next sandbox with the same address must not inherit.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::IgnorePoison;
use netlink::links;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::connections;
use crate::kernel::Kernel;

/// After this time the namespace, and with it the link, is usually gone. A remaining link is then removed.
const LINK_GRACE: Duration = Duration::from_millis(300);

/// What to clean up.
pub struct RemovedSandbox {
    pub link: String,
    /// 0 if there was no link. The next sandbox's link can have the same name but not the same index.
    pub index: u32,
    pub address: Ipv4Addr,
}

/// Addresses whose connections the kernel may still track, with whether those were deleted.
#[derive(Default)]
pub struct StaleConnections(Mutex<HashMap<Ipv4Addr, Arc<Mutex<bool>>>>);

impl StaleConnections {
    /// Notes that the address was given back and may have tracked connections.
    pub fn mark(&self, address: Ipv4Addr) {
        self.all().insert(address, Arc::default());
    }

    /// Deletes the tracked connections of an address that was marked. Blocks; waits for another thread that is
    /// cleaning the same address. The lock of the map is not held meanwhile, so [`Self::mark`] does not wait.
    pub fn clean(&self, address: Ipv4Addr) {
        let Some(state) = self.all().get(&address).cloned() else { return };
        let mut is_clean = state.lock().ignore_poison();
        if !*is_clean {
            if let Err(error) = connections::delete_all(address) {
                tracing::debug!(%error, %address, "connections of a removed sandbox stay until they time out");
            }
            *is_clean = true;
        }
        let mut all = self.all();
        if all.get(&address).is_some_and(|current| Arc::ptr_eq(current, &state)) {
            all.remove(&address);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Ipv4Addr, Arc<Mutex<bool>>>> {
        self.0.lock().ignore_poison()
    }
}

/// Runs until `stop`. The next start of the daemon cleans up what is still queued then.
pub async fn run(
    kernel: Arc<Kernel>,
    stale_connections: Arc<StaleConnections>,
    mut removed_sandboxes: mpsc::UnboundedReceiver<RemovedSandbox>,
    stop: CancellationToken,
) {
    loop {
        let mut some = Vec::new();
        tokio::select! {
            count = removed_sandboxes.recv_many(&mut some, 1024) => if count == 0 { return },
            () = stop.cancelled() => return,
        }
        let stale_connections = Arc::clone(&stale_connections);
        let cleaned = tokio::task::spawn_blocking(move || {
            some.iter().for_each(|removed| stale_connections.clean(removed.address));
            some
        });
        let Ok(some) = cleaned.await else { return };
        tokio::select! {
            () = tokio::time::sleep(LINK_GRACE) => {}
            () = stop.cancelled() => return,
        }
        for removed in some {
            remove(&kernel, removed).await;
        }
    }
}

/// One request per link, so that other requests run in between.
async fn remove(kernel: &Kernel, removed: RemovedSandbox) {
    let RemovedSandbox { link, index, .. } = removed;
    if index == 0 {
        return;
    }
    let name = link.clone();
    let removed: io::Result<()> =
        kernel.links.call("remove a link", move |socket| links::remove_exactly(socket, index, &name)).await;
    if let Err(error) = removed {
        tracing::warn!(%error, link, "cannot remove the link of a removed sandbox");
    }
}
