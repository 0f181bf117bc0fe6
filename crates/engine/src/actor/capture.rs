//! Capture: the part of a snapshot that needs the sandbox to stand still.

use std::sync::Arc;
use std::time::Duration;

use api::{Isolation, SnapshotId};
use driver::{DiskCopy, SnapshotScope};
use rules::{Operation, decide};

use super::prepared_disk::settle_disk;
use super::stored_processes::{actual_isolation, check_isolation};
use super::{Actor, LinkedProcesses};
use crate::error::{EngineError, HibernationError};
use crate::host::{BOOT_TIMEOUT, RECONNECT_TIMEOUT, SETUP_TIMEOUT};
use crate::link::{Agent, LinkError};
use crate::registry::mailbox::CapturedDisk;

/// Completes a copy of the disk. The state of the sandbox does not change.
pub(super) async fn capture(
    actor: &mut Actor,
    mut copy: Box<dyn DiskCopy>,
    snapshot: &SnapshotId,
    scope: SnapshotScope,
) -> Result<CapturedDisk, EngineError> {
    decide(actor.record.state(), Operation::Snapshot)?;
    settle_disk(actor).await?;
    let frozen = match scope {
        SnapshotScope::Disk => {
            write_back_guest_cache(actor).await?;
            copy.capture(scope).await?
        }
        SnapshotScope::Processes => capture_processes(actor, &mut *copy, snapshot).await?,
    };
    Ok(CapturedDisk { copy, record: Arc::clone(&actor.record), frozen })
}

/// gVisor caches written data inside, where the host does not see it.
async fn write_back_guest_cache(actor: &mut Actor) -> Result<(), EngineError> {
    if actual_isolation(actor).await != Isolation::Gvisor {
        return Ok(());
    }
    match &actor.processes {
        LinkedProcesses::Ended | LinkedProcesses::Stored => Ok(()),
        LinkedProcesses::Running(agent) => sync_guest(actor, agent.clone()).await,
        // A frozen agent cannot. After a crash in between, the recovery freezes the sandbox again.
        LinkedProcesses::Frozen(agent) => {
            actor.context.host.driver().resume(actor.id()).await?;
            let synced = sync_guest(actor, agent.clone()).await;
            actor.context.host.driver().pause(actor.id()).await?;
            synced
        }
    }
}

async fn sync_guest(actor: &Actor, agent: Option<Agent>) -> Result<(), EngineError> {
    let agent = match agent {
        Some(agent) => agent,
        None => actor.connect(RECONNECT_TIMEOUT).await?,
    };
    Ok(agent.sync(SETUP_TIMEOUT).await?)
}

/// Captures the processes with the disk.
async fn capture_processes(
    actor: &mut Actor,
    copy: &mut dyn DiskCopy,
    snapshot: &SnapshotId,
) -> Result<Duration, EngineError> {
    check_isolation(actor).await?;
    match &actor.processes {
        LinkedProcesses::Ended => {
            let reason = "they have ended".to_owned();
            Err(EngineError::Hibernation(HibernationError::NotStorable { reason }))
        }
        LinkedProcesses::Stored => {
            let frozen = copy.capture(SnapshotScope::Processes).await?;
            store_executions(actor, snapshot).await?;
            Ok(frozen)
        }
        LinkedProcesses::Running(agent) => {
            let agent = agent.clone();
            capture_running(actor, copy, snapshot, agent).await
        }
        // As in `write_back_guest_cache`: the agent has to suspend its link.
        LinkedProcesses::Frozen(agent) => {
            let agent = agent.clone();
            actor.context.host.driver().resume(actor.id()).await?;
            let captured = capture_running(actor, copy, snapshot, agent).await;
            actor.context.host.driver().pause(actor.id()).await?;
            captured
        }
    }
}

/// Storing the processes breaks their connections, also that of the agent. Its link continues on a new one, so commands and their
/// clients notice nothing.
async fn capture_running(
    actor: &mut Actor,
    copy: &mut dyn DiskCopy,
    snapshot: &SnapshotId,
    agent: Option<Agent>,
) -> Result<Duration, EngineError> {
    let agent = match agent.filter(|agent| !agent.is_closed()) {
        Some(agent) => agent,
        None => {
            let agent = actor.connect(RECONNECT_TIMEOUT).await?;
            actor.processes.set_link(Some(agent.clone()));
            agent
        }
    };
    let suspended = agent.suspend(SETUP_TIMEOUT).await.map_err(|error| match error {
        LinkError::TooOld => {
            let reason = "an earlier version of the service has started it".to_owned();
            EngineError::Hibernation(HibernationError::NotStorable { reason })
        }
        error => error.into(),
    })?;
    let captured = copy.capture(SnapshotScope::Processes).await;
    // While the link is suspended, nothing is added to their logs that the copies of the agent send, too.
    let stored = match &captured {
        Ok(_) => store_executions(actor, snapshot).await,
        Err(_) => Ok(()),
    };
    let connected = tokio::time::timeout(BOOT_TIMEOUT, actor.context.host.driver().connect(actor.id()));
    let continued = match connected.await {
        Ok(Ok(stream)) => suspended.resume(stream).await.map_err(EngineError::from),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(LinkError::Silent(BOOT_TIMEOUT).into()),
    };
    if let Err(error) = continued {
        // The link has ended, which the loop of the actor notices.
        tracing::warn!(id = %actor.id(), %error, "the link to an agent did not survive a snapshot");
    }
    let frozen = captured?;
    stored.map(|()| frozen)
}

async fn store_executions(actor: &Actor, snapshot: &SnapshotId) -> Result<(), EngineError> {
    let now = actor.context.stamped_store.now();
    let samples = actor.executions.sample(actor.record.lifecycle.running_ms(now));
    actor.context.detached.store(snapshot, samples).await
}
