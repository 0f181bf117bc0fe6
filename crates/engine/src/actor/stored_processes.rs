//! Processes of a sandbox that are stored on its disk, or can be.

use api::Isolation;
use driver::DiskUse;

use super::Actor;
use crate::capacity::ledger::QuotaCheck;
use crate::error::{EngineError, HibernationError};

/// Whether the isolation of the sandbox can store processes.
pub(super) fn can_store_processes(actor: &Actor) -> bool {
    actor.context.host.driver().can_store_processes(actor.record.config.isolation)
}

/// Fails if the isolation of the sandbox cannot store processes, with one that can.
pub(super) async fn check_isolation(actor: &Actor) -> Result<(), EngineError> {
    let driver = actor.context.host.driver();
    let isolation = actual_isolation(actor).await;
    if driver.can_store_processes(isolation) {
        return Ok(());
    }
    let other = Isolation::ALL.into_iter().find(|other| driver.can_store_processes(*other));
    let advice = match other {
        Some(other) => format!("create it with isolation '{other}'"),
        None => "this host has no isolation that can".to_owned(),
    };
    let reason = format!("its isolation is '{isolation}'; {advice}");
    Err(EngineError::Hibernation(HibernationError::NotStorable { reason }))
}

/// The operator may have raised the isolation above that of the record.
pub(super) async fn actual_isolation(actor: &Actor) -> Isolation {
    let actual = actor.context.host.driver().isolation(actor.id()).await;
    actual.unwrap_or(actor.record.config.isolation)
}

/// Counts the stored processes that are on the disk.
pub(super) async fn count_stored_processes(actor: &mut Actor) {
    match actor.context.host.driver().disk_use(actor.id()).await {
        // Not refused: they are on the disk.
        Ok(DiskUse { stored, .. }) => {
            let _ = actor.reservation.set_stored_bytes(stored, QuotaCheck::CountOnly);
        }
        Err(error) => {
            tracing::warn!(id = %actor.id(), %error, "could not find out the size of stored processes");
        }
    }
}

/// Removes the stored processes of a sandbox that runs again.
pub(super) async fn discard_memory(actor: &mut Actor) {
    if let Err(error) = actor.context.host.driver().discard_memory(actor.id()).await {
        tracing::error!(id = %actor.id(), %error, "could not remove the stored processes of a sandbox that runs");
        return;
    }
    count_stored_processes(actor).await;
}
