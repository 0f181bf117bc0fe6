//! Loss: what happens when the processes of a sandbox, or the link to its agent, end unexpectedly.

use std::borrow::Cow;
use std::time::Duration;

use api::EventKind;
use driver::MemoryKills;
use rules::{PausedProcesses, ProcessState};
use serde_json::json;
use tokio::time::Instant;

use super::{Actor, LinkedProcesses};
use crate::error::EngineError;
use crate::host::{RECONNECT_TIMEOUT, guest};
use crate::link::Agent;
use crate::record::status::ProcessLoss;

/// The link of a killed sandbox may end shortly before its last process.
const LOSS_TIMEOUT: Duration = Duration::from_secs(2);
const INSPECT_INTERVAL: Duration = Duration::from_millis(20);
/// After two losses of the link within this time, the link is opened again by the next request only.
const LINK_LOSS_BACKOFF: Duration = Duration::from_secs(1);

/// The note of a sandbox whose processes ended unexpectedly. Its next event reports it.
pub const PROCESSES_LOST: &str = "its processes ended unexpectedly; its disk is unchanged";

/// The state of a sandbox after its link ended.
enum LinkLoss {
    ProcessesGone,
    Reconnected(Agent),
    Unreachable,
}

/// When the link is opened again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reconnection {
    Now,
    LeftToRequest,
}

/// Handles the end of the link: opens it again if the sandbox has processes, records their loss if it has none.
pub(super) async fn link_lost(actor: &mut Actor) {
    actor.processes.set_link(None);
    let last_loss = actor.last_link_loss.replace(Instant::now());
    let is_repeated = last_loss.is_some_and(|last| last.elapsed() < LINK_LOSS_BACKOFF);
    let reconnection = if is_repeated { Reconnection::LeftToRequest } else { Reconnection::Now };
    match tokio::time::timeout(LOSS_TIMEOUT, inspect_after_link_loss(actor, reconnection)).await {
        Ok(LinkLoss::ProcessesGone) => {
            if let Err(error) = processes_lost(actor).await {
                tracing::error!(id = %actor.id(), %error, "could not record that a sandbox's processes ended");
            }
        }
        Ok(LinkLoss::Reconnected(agent)) => actor.processes = LinkedProcesses::Running(Some(agent)),
        Ok(LinkLoss::Unreachable) | Err(_) => {}
    }
}

async fn inspect_after_link_loss(actor: &Actor, reconnection: Reconnection) -> LinkLoss {
    loop {
        match actor.context.host.process_state(actor.id()).await {
            Ok(ProcessState::Ended | ProcessState::Stored) => {
                return LinkLoss::ProcessesGone;
            }
            // A frozen agent cannot answer. The link is opened after the resume.
            Ok(ProcessState::Frozen) => return LinkLoss::Unreachable,
            Ok(ProcessState::Running) if reconnection == Reconnection::Now => {
                if let Ok(agent) = actor.connect(RECONNECT_TIMEOUT).await {
                    return LinkLoss::Reconnected(agent);
                }
            }
            Ok(ProcessState::Running) => {}
            Err(error) => {
                tracing::warn!(id = %actor.id(), %error, "could not inspect a sandbox after the loss of its link");
            }
        }
        tokio::time::sleep(INSPECT_INTERVAL).await;
    }
}

/// Whether the sandbox should have processes and has none.
pub(super) async fn has_lost_processes(actor: &Actor) -> bool {
    actor.processes.are_in_memory() && actor.context.host.has_no_processes(actor.id()).await
}

/// Stops the sandbox and records the loss of its processes. If the record cannot be committed, the next request tries again.
pub(super) async fn processes_lost(actor: &mut Actor) -> Result<(), EngineError> {
    // Before the stop, which removes the count.
    let memory_kills = actor.context.host.driver().memory_kills(actor.id()).await;
    let note = note_of_loss(memory_kills, actor.record.config.resources.memory_mb);
    tracing::warn!(id = %actor.id(), account = %actor.record.account, %note, "a sandbox's processes ended unexpectedly; it is paused on its disk");
    actor.process_loss = Some(ProcessLoss { number: actor.record.revision + 1, memory_kills });
    actor.processes = LinkedProcesses::Ended;
    actor.context.counters.processes_lost.add(1);
    actor.reservation.lower(actor.processes.state());
    if let Err(error) = actor.context.host.stop(&guest(&actor.record)).await {
        tracing::error!(id = %actor.id(), %error, "could not stop a sandbox after the loss of its processes");
    }
    let now = actor.context.stamped_store.now();
    let ended = PausedProcesses::Ended { note: note.to_string() };
    let next = actor.next_record(actor.record.lifecycle.paused(now, ended));
    let data = json!({ "message": note });
    Ok(actor.commit(next, EventKind::SandboxError, data, now).await?)
}

/// The note about an unexpected end of all processes. The kernel may have killed others earlier, so it is named as a fact and not as the
/// cause.
fn note_of_loss(memory_kills: Option<MemoryKills>, memory_mb: u32) -> Cow<'static, str> {
    match memory_kills {
        Some(MemoryKills { count: 1.., .. }) => Cow::Owned(format!(
            "its processes ended unexpectedly, and the kernel has killed some for lack of memory (resources.memoryMb is {memory_mb}); its disk is unchanged"
        )),
        _ => Cow::Borrowed(PROCESSES_LOST),
    }
}
