//! Exposing and closing ports: changes of the record, with an event in the same commit.
//!
//! Neither touches the host. A paused sandbox stays paused, and a failed commit leaves nothing to undo.

use api::{EventKind, RunId};
use rand::Rng;
use rules::{ExposeRequest, MAX_PORTS, Operation, PortRefusal, TimeMs, decide, may_expose};
use serde_json::{Value, json};
use store::{ExposedPort, NewEvent, SandboxRecord};

use super::{Actor, event};
use crate::error::EngineError;

impl Actor {
    pub(super) async fn expose_port(
        &mut self,
        request: ExposeRequest,
        run: Option<RunId>,
    ) -> Result<ExposedPort, EngineError> {
        decide(self.record.state, Operation::Network)?;
        may_expose(&self.record.config.network, request.port)?;
        let mut next = (*self.record).clone();
        next.ports.retain(|port| port.port != request.port);
        if next.ports.len() >= MAX_PORTS {
            return Err(PortRefusal::TooMany { most: MAX_PORTS }.into());
        }
        let mut seal = [0; 16];
        rand::rng().fill_bytes(&mut seal);
        let exposed_at = self.context.stamped_store.now();
        let ExposeRequest { port, visibility, auto_resume } = request;
        let exposed = ExposedPort { port, visibility, auto_resume, exposed_at, seal };
        next.ports.push(exposed.clone());
        next.ports.sort_by_key(|port| port.port);
        let data = json!({ "port": port, "visibility": visibility, "autoResume": auto_resume });
        let event = port_event(&next, EventKind::PortExposed, data, run, exposed_at);
        self.commit_events(next, vec![event], exposed_at).await?;
        Ok(exposed)
    }

    pub(super) async fn close_port(&mut self, port: u16, run: Option<RunId>) -> Result<TimeMs, EngineError> {
        decide(self.record.state, Operation::Network)?;
        let mut next = (*self.record).clone();
        next.ports.retain(|exposed| exposed.port != port);
        if next.ports.len() == self.record.ports.len() {
            return Err(PortRefusal::NotExposed { port }.into());
        }
        let now = self.context.stamped_store.now();
        let event = closed_event(&next, port, "request", run, now);
        self.commit_events(next, vec![event], now).await?;
        Ok(now)
    }
}

/// Closes the ports that the record's policy forbids. Returns their events.
pub(super) fn close_forbidden(next: &mut SandboxRecord, at: TimeMs) -> Vec<NewEvent> {
    let policy = &next.config.network;
    let (allowed, forbidden): (Vec<_>, Vec<_>) =
        std::mem::take(&mut next.ports).into_iter().partition(|port| may_expose(policy, port.port).is_ok());
    next.ports = allowed;
    forbidden.iter().map(|port| closed_event(next, port.port, "network", None, at)).collect()
}

fn closed_event(next: &SandboxRecord, port: u16, reason: &str, run: Option<RunId>, at: TimeMs) -> NewEvent {
    port_event(next, EventKind::PortClosed, json!({ "port": port, "reason": reason }), run, at)
}

fn port_event(
    record: &SandboxRecord,
    kind: EventKind,
    data: Value,
    run: Option<RunId>,
    at: TimeMs,
) -> NewEvent {
    let run = run.map(|run| run.as_str().to_owned()).unwrap_or_default();
    NewEvent { at, run, ..event(record, kind, data) }
}
