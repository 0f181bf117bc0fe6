//! Wake: continues stored processes. The resume commits that the sandbox runs, and discards what is stored.

use rules::RepeatableWork;

use super::stored_processes::can_store_processes;
use super::{Actor, LinkedProcesses};
use crate::error::EngineError;
use crate::host::{BOOT_TIMEOUT, SETUP_TIMEOUT, guest};
use crate::link::Agent;

/// Continues the stored processes. The network opens last: after they are told that they may be copies.
pub(super) async fn wake_processes(actor: &mut Actor) -> Result<Agent, EngineError> {
    let work = actor.begin_work(RepeatableWork::Wake).await.map_err(EngineError::of_wake)?;
    let woken = continue_processes(actor).await;
    work.end().await;
    woken
}

async fn continue_processes(actor: &mut Actor) -> Result<Agent, EngineError> {
    actor.context.host.wake(&actor.spec).await.map_err(EngineError::of_wake)?;
    // The stored processes no longer match the disk: if something else fails, the running ones are frozen.
    actor.processes = LinkedProcesses::Frozen(None);
    let agent = actor.connect(BOOT_TIMEOUT).await.map_err(EngineError::of_wake)?;
    complete_wake(actor, Some(&agent)).await?;
    Ok(agent)
}

/// The steps of a wake after the processes run. A wake whose record was not committed may have missed them.
pub(super) async fn complete_wake(actor: &Actor, agent: Option<&Agent>) -> Result<(), EngineError> {
    if let Some(agent) = agent.filter(|_| can_store_processes(actor))
        && let Err(error) = agent.adopt(&actor.id().host_name(), SETUP_TIMEOUT).await
    {
        // The owner has put something else in place of the file that announces the copy.
        tracing::warn!(id = %actor.id(), %error, "could not announce to a sandbox that its processes continue");
    }
    // Also if the record does not say that the processes were stored: their network was removed then.
    let egress = &actor.record.config.network.egress;
    Ok(actor.context.host.network().apply(&guest(&actor.record), egress).await?)
}
