//! Numbers about the engine, for metrics: what there is now, and what happened since it was opened.

use api::SandboxState;
use rules::{Capacity, Usage};

use crate::counters::Counts;
use crate::network::guest;
use crate::shared::Shared;
use crate::warm_pool::PoolState;

/// What is known at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSnapshot {
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
    /// What the network refused to sandboxes, by the code of the reason.
    pub network_refusals: Vec<(&'static str, u64)>,
    /// What sandboxes sent and received, and have open, together.
    pub traffic: net::Usage,
}

/// A look at everything; it costs a look at each sandbox's published state.
pub fn snapshot(shared: &Shared) -> MetricsSnapshot {
    let (mut running, mut paused) = (0, 0);
    shared.each_state(|state| match state {
        SandboxState::Running => running += 1,
        SandboxState::Paused => paused += 1,
        // Created before it is registered, terminated before it is taken out.
        SandboxState::Creating | SandboxState::Terminated => {}
    });
    MetricsSnapshot {
        creating: shared.creating.get(),
        running,
        paused,
        executions_running: shared.commands.get(),
        executions_waiting: shared.waiting.get(),
        pool: shared.warm_pool.state(),
        capacity: shared.ledger.capacity(),
        usage: shared.ledger.used(),
        counts: shared.counters.read(),
        network_refusals: shared.counters.network_refusals.read(),
        traffic: traffic(shared),
    }
}

fn traffic(shared: &Shared) -> net::Usage {
    let mut all = net::Usage::default();
    for record in shared.records() {
        let one = shared.network.usage(&guest(&record));
        all.bytes_out += one.bytes_out;
        all.bytes_in += one.bytes_in;
        all.connections += one.connections;
    }
    all
}
