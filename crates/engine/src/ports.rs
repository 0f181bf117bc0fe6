//! Ports that are reached from outside, as the layers above see them.
//!
//! Which there are is part of a sandbox's record, so its actor alone changes that. Whoever carries traffic looks at what was
//! published, which costs no question to the actor, and is let in for each connection as for any other work.

use std::sync::Arc;

use api::{RunId, SandboxId};
use rules::{AutoResume, ExposeOrder, Operation, PortRefusal, TimeMs};
use store::{ExposedPort, SandboxRecord};
use tokio::sync::watch;

use crate::engine::{DIAL_PATIENCE, Engine};
use crate::error::EngineError;
use crate::handle::{Permit, Request};
use crate::link::Tunnel;
use crate::status::Status;

/// A port that is exposed, and whether it still is.
#[derive(Clone)]
pub struct Exposure {
    pub port: ExposedPort,
    pub record: Arc<SandboxRecord>,
    status: watch::Receiver<Status>,
}

impl Exposure {
    /// Resolves when this exposure is over: closed, made anew, or gone with its sandbox.
    pub async fn over(mut self) {
        let (number, seal) = (self.port.port, self.port.seal);
        let is_over = |status: &Status| find(&status.record, number).is_none_or(|port| port.seal != seal);
        // A sender that went away is an end too; but an engine that stops lets what is under way go on.
        if self.status.wait_for(is_over).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn find(record: &SandboxRecord, number: u16) -> Option<&ExposedPort> {
    record.ports.iter().find(|port| port.port == number)
}

impl Engine {
    /// Lets a port be reached from outside. One that is already is so anew: what was good for it until now is no more.
    pub async fn expose(
        &self,
        account: &str,
        id: &SandboxId,
        order: ExposeOrder,
        run: Option<RunId>,
    ) -> Result<ExposedPort, EngineError> {
        let handle = self.find(account, id).await?;
        let asked = handle.ask(|reply| Request::Expose { order, run, reply }).await;
        self.or_why_it_ended(account, id, asked).await
    }

    /// Ends that. Connections through it are cut.
    pub async fn close_port(
        &self,
        account: &str,
        id: &SandboxId,
        port: u16,
        run: Option<RunId>,
    ) -> Result<TimeMs, EngineError> {
        let handle = self.find(account, id).await?;
        let asked = handle.ask(|reply| Request::ClosePort { port, run, reply }).await;
        self.or_why_it_ended(account, id, asked).await
    }

    /// The ports of a sandbox that are reached from outside.
    pub async fn ports(&self, account: &str, id: &SandboxId) -> Result<Vec<ExposedPort>, EngineError> {
        Ok(self.get(account, id).await?.record.ports.clone())
    }

    /// One of them.
    pub async fn port(&self, account: &str, id: &SandboxId, port: u16) -> Result<ExposedPort, EngineError> {
        let status = self.get(account, id).await?;
        find(&status.record, port).cloned().ok_or(PortRefusal::NotExposed { port }.into())
    }

    /// Whatever account it is of: a look at what was published, which waits for nothing.
    pub fn exposure(&self, id: &SandboxId, port: u16) -> Result<Exposure, EngineError> {
        let Some(handle) = self.shared.find(id) else {
            // The registry of an engine that stops is empty, and says nothing.
            let stops = self.shared.stopping.is_cancelled();
            return Err(if stops { EngineError::Stopping } else { PortRefusal::NotExposed { port }.into() });
        };
        let record = Arc::clone(&handle.status.borrow().record);
        match find(&record, port).cloned() {
            Some(port) => Ok(Exposure { port, record, status: handle.status }),
            None => Err(PortRefusal::NotExposed { port }.into()),
        }
    }

    /// A connection to what listens on an exposed port. The permit holds the sandbox awake for as long as it is kept.
    pub async fn enter_port(&self, exposure: &Exposure) -> Result<(Tunnel, Permit), EngineError> {
        let (record, port) = (&exposure.record, &exposure.port);
        let operation = Operation::Ports { auto_resume: AutoResume::from(port.auto_resume) };
        let handle = self.find(&record.account, &record.id).await?;
        let entry = handle.ask(|reply| Request::Enter { operation, reply }).await?;
        Ok((entry.agent.dial(port.port, DIAL_PATIENCE).await?, entry.permit))
    }
}
