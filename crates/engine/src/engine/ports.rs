//! Connections to exposed ports from outside.
//!
//! The port relay reads the published record, which needs no request to the sandbox's actor, and asks for admission once per
//! connection.

use std::sync::Arc;

use api::{PortVisibility, SandboxId};
use rules::{AutoResume, Operation, PortRefusal};
use store::ExposedPort;

use super::Engine;
use crate::error::{DaemonError, EngineError};
use crate::link::Tunnel;
use crate::record::exposure::{Exposure, find_port};
use crate::registry::mailbox::{ActorRequest, Admission, Permit};

impl Engine {
    /// The exposure of a port of a sandbox of any account, from the published record.
    pub fn exposure(&self, id: &SandboxId, port: u16) -> Result<Exposure, EngineError> {
        let Some(actor) = self.services.registry.find(id) else {
            // A stopping engine has emptied its registry although the sandboxes keep running.
            let is_stopping = self.services.tasks.is_stopping();
            return Err(if is_stopping {
                EngineError::Daemon(DaemonError::Stopping)
            } else {
                PortRefusal::NotExposed { port }.into()
            });
        };
        let record = Arc::clone(&actor.status.borrow().record);
        match find_port(&record, port).cloned() {
            Some(port) => Ok(Exposure { port, record, is_implicit: false, status: actor.status }),
            None => Err(PortRefusal::NotExposed { port }.into()),
        }
    }

    /// A port of a sandbox whose ports are open without being exposed. The caller has decided that they are.
    pub fn implicit_exposure(&self, id: &SandboxId, port: u16, auto_resume: bool) -> Option<Exposure> {
        let actor = self.services.registry.find(id)?;
        let record = Arc::clone(&actor.status.borrow().record);
        let exposed_at = record.created_at;
        let (visibility, seal) = (PortVisibility::Public, [0; 16]);
        let port = ExposedPort { port, visibility, auto_resume, exposed_at, seal };
        Some(Exposure { port, record, is_implicit: true, status: actor.status })
    }

    /// Connects to an exposed port. The sandbox is not paused for idleness while the permit exists.
    pub async fn connect_port(&self, exposure: &Exposure) -> Result<(Tunnel, Permit), EngineError> {
        let admission = self.admit_port(exposure).await?;
        Ok((admission.dial(exposure.port.port).await?, admission.permit))
    }

    /// Admits a use of an exposed port. A paused sandbox is resumed if the port allows that.
    pub async fn admit_port(&self, exposure: &Exposure) -> Result<Admission, EngineError> {
        let (record, port) = (&exposure.record, &exposure.port);
        let operation = Operation::Ports { auto_resume: AutoResume::from(port.auto_resume) };
        let actor = self.sandbox(&record.account, &record.id).actor().await?;
        actor.request(|reply| ActorRequest::Enter { operation, reply }).await
    }
}
