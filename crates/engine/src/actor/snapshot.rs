//! The part of a snapshot that needs the sandbox to stand still.

use std::sync::Arc;
use std::time::Duration;

use api::{Isolation, SnapshotId};
use driver::{DiskCopy, SnapshotScope};
use rules::{Operation, decide};

use super::{Actor, ProcessState};
use crate::error::{EngineError, HibernationError};
use crate::host::{BOOT_TIMEOUT, RECONNECT_TIMEOUT, SETUP_TIMEOUT};
use crate::link::{Agent, LinkError};
use crate::registry::mailbox::CapturedDisk;

impl Actor {
    /// Completes a copy of the disk. The state of the sandbox does not change.
    pub(super) async fn capture(
        &mut self,
        mut copy: Box<dyn DiskCopy>,
        snapshot: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<CapturedDisk, EngineError> {
        decide(self.record.state(), Operation::Snapshot)?;
        self.settle_disk().await?;
        let frozen = match scope {
            SnapshotScope::Disk => {
                self.write_back_guest_cache().await?;
                copy.capture(scope).await?
            }
            SnapshotScope::Processes => self.capture_processes(&mut *copy, snapshot).await?,
        };
        Ok(CapturedDisk { copy, record: Arc::clone(&self.record), frozen })
    }

    /// gVisor caches written data inside, where the host does not see it.
    async fn write_back_guest_cache(&mut self) -> Result<(), EngineError> {
        if self.actual_isolation().await != Isolation::Gvisor {
            return Ok(());
        }
        match &self.processes {
            ProcessState::Stopped | ProcessState::Hibernated => Ok(()),
            ProcessState::Running(agent) => self.sync_guest(agent.clone()).await,
            // A frozen agent cannot. After a crash in between, the recovery freezes the sandbox again.
            ProcessState::Frozen(agent) => {
                self.context.host.driver().resume(self.id()).await?;
                let synced = self.sync_guest(agent.clone()).await;
                self.context.host.driver().pause(self.id()).await?;
                synced
            }
        }
    }

    /// The operator may have raised the isolation above that of the record.
    pub(super) async fn actual_isolation(&self) -> Isolation {
        let actual = self.context.host.driver().isolation(self.id()).await;
        actual.unwrap_or(self.record.config.isolation)
    }

    async fn sync_guest(&self, agent: Option<Agent>) -> Result<(), EngineError> {
        let agent = match agent {
            Some(agent) => agent,
            None => self.connect(RECONNECT_TIMEOUT).await?,
        };
        Ok(agent.sync(SETUP_TIMEOUT).await?)
    }

    /// Captures the processes with the disk.
    async fn capture_processes(
        &mut self,
        copy: &mut dyn DiskCopy,
        snapshot: &SnapshotId,
    ) -> Result<Duration, EngineError> {
        self.check_isolation().await?;
        match &self.processes {
            ProcessState::Stopped => {
                let reason = "they have ended".to_owned();
                Err(EngineError::Hibernation(HibernationError::NotStorable { reason }))
            }
            ProcessState::Hibernated => {
                let frozen = copy.capture(SnapshotScope::Processes).await?;
                self.store_executions(snapshot).await?;
                Ok(frozen)
            }
            ProcessState::Running(agent) => {
                let agent = agent.clone();
                self.capture_running(copy, snapshot, agent).await
            }
            // As in `write_back_guest_cache`: the agent has to suspend its link.
            ProcessState::Frozen(agent) => {
                let agent = agent.clone();
                self.context.host.driver().resume(self.id()).await?;
                let captured = self.capture_running(copy, snapshot, agent).await;
                self.context.host.driver().pause(self.id()).await?;
                captured
            }
        }
    }

    /// Storing the processes breaks their connections, also that of the agent. Its link continues on a new one, so commands and their
    /// clients notice nothing.
    async fn capture_running(
        &mut self,
        copy: &mut dyn DiskCopy,
        snapshot: &SnapshotId,
        agent: Option<Agent>,
    ) -> Result<Duration, EngineError> {
        let agent = match agent.filter(|agent| !agent.is_closed()) {
            Some(agent) => agent,
            None => {
                let agent = self.connect(RECONNECT_TIMEOUT).await?;
                let was_frozen = matches!(self.processes, ProcessState::Frozen(_));
                let linked = Some(agent.clone());
                self.processes =
                    if was_frozen { ProcessState::Frozen(linked) } else { ProcessState::Running(linked) };
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
            Ok(_) => self.store_executions(snapshot).await,
            Err(_) => Ok(()),
        };
        let connected = tokio::time::timeout(BOOT_TIMEOUT, self.context.host.driver().connect(self.id()));
        let continued = match connected.await {
            Ok(Ok(stream)) => suspended.resume(stream).await.map_err(EngineError::from),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(LinkError::Silent(BOOT_TIMEOUT).into()),
        };
        if let Err(error) = continued {
            // The link has ended, which the loop of the actor notices.
            tracing::warn!(id = %self.id(), %error, "the link to an agent did not survive a snapshot");
        }
        let frozen = captured?;
        stored.map(|()| frozen)
    }

    async fn store_executions(&self, snapshot: &SnapshotId) -> Result<(), EngineError> {
        let now = self.context.stamped_store.now();
        let samples = self.executions.sample(self.record.lifecycle.running_ms(now));
        self.context.detached.store(snapshot, samples).await
    }
}
