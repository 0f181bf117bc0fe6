//! Giving sandboxes up that belong to nobody: those that failed to start, and members of the pool that are in the way.

use api::SandboxId;

use crate::shared::Shared;
use crate::shelves::Started;

/// Whether all of a sandbox is gone from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    All,
    /// What is left keeps its range of user ids until the next recovery.
    NotAll,
}

/// Removes what there is on the host. What resists is left to the next recovery, and said.
pub async fn undo(shared: &Shared, id: &SandboxId) -> Removed {
    match shared.driver.destroy(id).await {
        Ok(()) => Removed::All,
        Err(error) => {
            tracing::error!(%id, %error, "could not remove a sandbox that belongs to nobody");
            Removed::NotAll
        }
    }
}

/// Gives everything back.
pub async fn discard(shared: &Shared, started: Started) {
    if undo(shared, &started.spec.id).await == Removed::NotAll {
        started.slot.keep();
    }
}

/// Gives up one member of the pool, if there is one, to make room for what is wanted now.
pub async fn shed_one(shared: &Shared) -> bool {
    let Some(member) = shared.shelves.take_any() else { return false };
    discard(shared, member).await;
    true
}
