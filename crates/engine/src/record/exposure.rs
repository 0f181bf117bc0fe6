//! Exposed ports as the published record of a sandbox has them. Only the sandbox's actor changes them.

use std::sync::Arc;

use api::SandboxState;
use store::{ExposedPort, SandboxRecord};
use tokio::sync::watch;

use crate::record::status::Status;

/// An exposed port, with a signal for its end.
#[derive(Clone)]
pub struct Exposure {
    pub port: ExposedPort,
    pub record: Arc<SandboxRecord>,
    /// Whether the port is open without having been exposed; it then lasts as long as the sandbox.
    pub is_implicit: bool,
    pub(crate) status: watch::Receiver<Status>,
}

impl Exposure {
    /// Resolves when this exposure ends: the port was closed or exposed again, or the sandbox was terminated.
    pub async fn ended(mut self) {
        let (number, seal, is_implicit) = (self.port.port, self.port.seal, self.is_implicit);
        let is_over = |status: &Status| match is_implicit {
            true => status.state() == SandboxState::Terminated,
            false => find_port(&status.record, number).is_none_or(|port| port.seal != seal),
        };
        // The sender is dropped only when the engine stops, which does not end connections.
        if self.status.wait_for(is_over).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

pub fn find_port(record: &SandboxRecord, number: u16) -> Option<&ExposedPort> {
    record.ports.iter().find(|port| port.port == number)
}
