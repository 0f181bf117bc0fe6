//! Giving sandboxes up that belong to nobody: those that failed to start, and members of the pool that are in the way.

use std::time::Duration;

use net::Guest;

use crate::error::EngineError;
use crate::network;
use crate::shared::Shared;
use crate::warm_pool::ProvisionedSandbox;

/// A sandbox of the pool is there within this, or not worth waiting for.
const PROVISION_TIMEOUT: Duration = Duration::from_secs(5);

/// Whether all of a sandbox is gone from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Complete,
    /// What is left keeps its range of user ids, and its address, until the next recovery.
    Incomplete,
}

/// Removes what there is on the host. What resists is left to the next recovery, and said.
pub async fn remove_or_log(shared: &Shared, guest: &Guest) -> Removal {
    match remove(shared, guest).await {
        Ok(()) => Removal::Complete,
        Err(error) => {
            tracing::error!(id = %guest.id, %error, "could not remove a sandbox that belongs to nobody");
            Removal::Incomplete
        }
    }
}

/// Removes a sandbox from the host, its processes first, then its network: also where its disk resists.
pub async fn remove(shared: &Shared, guest: &Guest) -> Result<(), EngineError> {
    let destroyed = shared.driver.destroy(&guest.id).await;
    shared.network.unplug(guest).await?;
    Ok(destroyed?)
}

/// Gives everything back.
pub async fn discard(shared: &Shared, started: ProvisionedSandbox) {
    if remove_or_log(shared, &network::guest_of(&started.spec)).await == Removal::Incomplete {
        started.slot.keep();
    }
}

/// Gives up one sandbox of the pool, if there is one, to make room for what is wanted now.
pub async fn evict_one(shared: &Shared) -> bool {
    let Some(sandbox) = shared.warm_pool.take_any() else { return false };
    discard(shared, sandbox).await;
    true
}

/// The same for a create, while which none is begun to be made: one that is being made is waited for, and then given up. False where
/// no room came of it.
pub async fn evict_one_or_wait(shared: &Shared) -> bool {
    loop {
        let delivery = shared.warm_pool.delivery();
        if evict_one(shared).await {
            return true;
        }
        let Some(mut delivery) = delivery else { return false };
        match tokio::time::timeout(PROVISION_TIMEOUT, delivery.changed()).await {
            // What could not be made has given its room back.
            Ok(Ok(())) if shared.warm_pool.is_empty() => return true,
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return false,
        }
    }
}
