//! Connections to exposed ports from outside.
//!
//! The port relay reads the published record, which needs no request to the sandbox's actor, and asks for admission once per
//! connection.

use std::sync::Arc;

use api::SandboxId;
use rules::{AutoResume, Operation, PortRefusal};

use super::Engine;
use crate::agent_timeout::DIAL_TIMEOUT;
use crate::error::EngineError;
use crate::link::Tunnel;
use crate::mailbox::{ActorRequest, Permit};
use crate::ports::{Exposure, find_port};

impl Engine {
    /// The exposure of a port of a sandbox of any account, from the published record.
    pub fn exposure(&self, id: &SandboxId, port: u16) -> Result<Exposure, EngineError> {
        let Some(actor) = self.services.registry.find(id) else {
            // A stopping engine has emptied its registry although the sandboxes keep running.
            let is_stopping = self.services.tasks.is_stopping();
            return Err(if is_stopping {
                EngineError::Stopping
            } else {
                PortRefusal::NotExposed { port }.into()
            });
        };
        let record = Arc::clone(&actor.status.borrow().record);
        match find_port(&record, port).cloned() {
            Some(port) => Ok(Exposure { port, record, status: actor.status }),
            None => Err(PortRefusal::NotExposed { port }.into()),
        }
    }

    /// Connects to an exposed port. The sandbox is not paused for idleness while the permit exists.
    pub async fn connect_port(&self, exposure: &Exposure) -> Result<(Tunnel, Permit), EngineError> {
        let (record, port) = (&exposure.record, &exposure.port);
        let operation = Operation::Ports { auto_resume: AutoResume::from(port.auto_resume) };
        let actor = self.sandbox(&record.account, &record.id).actor().await?;
        let admission = actor.request(|reply| ActorRequest::Enter { operation, reply }).await?;
        Ok((admission.agent.dial(port.port, DIAL_TIMEOUT).await?, admission.permit))
    }
}
