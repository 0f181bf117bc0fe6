//! Numbers about the engine, for metrics: what there is now, and what happened since it was opened.

use api::SandboxState;
use rules::{Capacity, Usage};

use crate::counters::Counts;
use crate::shared::Shared;
use crate::shelves::PoolState;

/// What is known at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Creates under way.
    pub creating: u64,
    pub running: u64,
    pub paused: u64,
    /// Commands that run, and those that wait for a place.
    pub executions_running: u64,
    pub executions_waiting: u64,
    pub pool: Vec<PoolState>,
    pub capacity: Capacity,
    pub usage: Usage,
    pub counts: Counts,
}

/// A look at everything; it costs a look at each sandbox's published state.
pub fn look(shared: &Shared) -> Facts {
    let (mut running, mut paused) = (0, 0);
    shared.each_state(|state| match state {
        SandboxState::Running => running += 1,
        SandboxState::Paused => paused += 1,
        // Created before it is registered, terminated before it is taken out.
        SandboxState::Creating | SandboxState::Terminated => {}
    });
    Facts {
        creating: shared.creating.get(),
        running,
        paused,
        executions_running: shared.commands.get(),
        executions_waiting: shared.waiting.get(),
        pool: shared.shelves.state(),
        capacity: shared.ledger.capacity(),
        usage: shared.ledger.used(),
        counts: shared.counters.read(),
    }
}
