//! Exposing and closing ports: changes of the record, with an event in the same commit.
//!
//! Neither touches the host. A paused sandbox stays paused, and a failed commit leaves nothing to undo.

use api::{EventKind, RunId};
use rand::Rng;
use rules::{ExposeRequest, MAX_PORTS, Operation, PortRefusal, TimeMs, decide, may_expose};
use serde_json::{Value, json};
use store::{ExposedPort, NewEvent, SandboxRecord};

use super::Actor;
use crate::error::EngineError;
use crate::record::events;

/// Exposes a port, paused or not.
pub(super) async fn expose_port(
    actor: &mut Actor,
    request: ExposeRequest,
    run: Option<RunId>,
) -> Result<ExposedPort, EngineError> {
    decide(actor.record.state(), Operation::Network)?;
    let now = actor.context.stamped_store.now();
    let (next, exposed, event) = expose(&actor.record, request, run, now)?;
    actor.commit_events(next, vec![event], now).await?;
    Ok(exposed)
}

/// Closes an exposed port. Returns when.
pub(super) async fn close_port(
    actor: &mut Actor,
    port: u16,
    run: Option<RunId>,
) -> Result<TimeMs, EngineError> {
    decide(actor.record.state(), Operation::Network)?;
    let now = actor.context.stamped_store.now();
    let (next, event) = close(&actor.record, port, run, now)?;
    actor.commit_events(next, vec![event], now).await?;
    Ok(now)
}

/// The next record with the port exposed, the port, and the event.
fn expose(
    record: &SandboxRecord,
    request: ExposeRequest,
    run: Option<RunId>,
    at: TimeMs,
) -> Result<(SandboxRecord, ExposedPort, NewEvent), EngineError> {
    may_expose(&record.config.network, request.port)?;
    let mut next = record.clone();
    next.ports.retain(|port| port.port != request.port);
    if next.ports.len() >= MAX_PORTS {
        return Err(PortRefusal::TooMany { most: MAX_PORTS }.into());
    }
    let mut seal = [0; 16];
    rand::rng().fill_bytes(&mut seal);
    let ExposeRequest { port, visibility, auto_resume } = request;
    let exposed = ExposedPort { port, visibility, auto_resume, exposed_at: at, seal };
    next.ports.push(exposed.clone());
    next.ports.sort_by_key(|port| port.port);
    let data = json!({ "port": port, "visibility": visibility, "autoResume": auto_resume });
    let event = port_event(&next, EventKind::PortExposed, data, run, at);
    Ok((next, exposed, event))
}

/// The next record without the port, and the event.
fn close(
    record: &SandboxRecord,
    port: u16,
    run: Option<RunId>,
    at: TimeMs,
) -> Result<(SandboxRecord, NewEvent), EngineError> {
    let mut next = record.clone();
    next.ports.retain(|exposed| exposed.port != port);
    if next.ports.len() == record.ports.len() {
        return Err(PortRefusal::NotExposed { port }.into());
    }
    let event = closed_event(&next, port, "request", run, at);
    Ok((next, event))
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
    NewEvent { run, ..events::of_sandbox(record, at, kind, data) }
}
