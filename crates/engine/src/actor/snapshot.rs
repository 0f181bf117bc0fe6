//! The part of a snapshot that needs the sandbox to stand still.

use std::sync::Arc;

use api::Isolation;
use driver::DiskCopy;
use rules::{Operation, decide};

use super::{Actor, ProcessState};
use crate::error::EngineError;
use crate::host::{RECONNECT_TIMEOUT, SETUP_TIMEOUT};
use crate::link::Agent;
use crate::mailbox::CapturedDisk;

impl Actor {
    /// Completes a copy of the disk. The state of the sandbox does not change.
    pub(super) async fn capture(&mut self, mut copy: Box<dyn DiskCopy>) -> Result<CapturedDisk, EngineError> {
        decide(self.record.state, Operation::Snapshot)?;
        self.settle_disk().await?;
        self.write_back_guest_cache().await?;
        let frozen = copy.capture().await?;
        Ok(CapturedDisk { copy, record: Arc::clone(&self.record), frozen })
    }

    /// gVisor caches written data inside, where the host does not see it.
    async fn write_back_guest_cache(&mut self) -> Result<(), EngineError> {
        // The operator may have raised the isolation above that of the record.
        let actual = self.context.host.driver().isolation(self.id()).await;
        if actual.unwrap_or(self.record.config.isolation) != Isolation::Gvisor {
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

    async fn sync_guest(&self, agent: Option<Agent>) -> Result<(), EngineError> {
        let agent = match agent {
            Some(agent) => agent,
            None => self.connect(RECONNECT_TIMEOUT).await?,
        };
        Ok(agent.sync(SETUP_TIMEOUT).await?)
    }
}
