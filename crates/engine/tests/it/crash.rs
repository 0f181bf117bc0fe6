//! Crashes of the daemon before and after every step on the host: the runtime is dropped with all tasks, and another engine opens the host
//! and the records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::SandboxState;
use driver::Presence;
use driver::fake::{FakeDriver, Fault};
use store::{MemoryStore, Store};

use crate::harness::{Harness, START, runtime, settle, with_pool};
use crate::network::fake::FakeNetwork;

/// The results that were acknowledged before the crash.
type Acknowledged = Arc<Mutex<BTreeMap<api::SandboxId, SandboxState>>>;

/// Runs two clients, each of which creates, uses and terminates a sandbox. Unfinished requests are not acknowledged.
async fn run_clients(harness: &Harness, acknowledged: &Acknowledged) {
    let client = async || {
        let id = harness.create().await;
        let acknowledge = |state: Option<SandboxState>| {
            let mut acknowledged = acknowledged.lock().unwrap();
            match state {
                Some(state) => acknowledged.insert(id.clone(), state),
                None => acknowledged.remove(&id),
            };
        };
        acknowledge(Some(SandboxState::Running));
        harness.run(&id, "echo kept > file").await.unwrap();
        acknowledge(None);
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        acknowledge(Some(SandboxState::Paused));
        acknowledge(None);
        harness.run(&id, "cat file").await.unwrap();
        acknowledge(Some(SandboxState::Running));
        acknowledge(None);
        harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
        acknowledge(Some(SandboxState::Terminated));
    };
    tokio::join!(client(), client());
}

/// The fake whose steps are counted.
#[derive(Debug, Clone, Copy)]
enum Component {
    Driver,
    Network,
}

/// Crashes in the step after `steps`. Returns whether the clients finished before the crash.
fn finishes_before_crash(component: Component, steps: usize, fault: Fault) -> bool {
    let (driver, store, acknowledged) = (FakeDriver::new(), MemoryStore::new(), Acknowledged::default());
    let network = FakeNetwork::with_driver(&driver);
    match component {
        Component::Driver => driver.crash_after(steps, fault),
        Component::Network => network.crash_after(steps, fault),
    }
    let first = runtime();
    let finished = first.block_on(async {
        let opening = Harness::over_all(driver.clone(), store.clone(), network.clone(), with_pool(1), START);
        // The clock advances only when all tasks wait.
        let living = async { run_clients(&opening.await, &acknowledged).await };
        tokio::time::timeout(Duration::from_millis(100), living).await.is_ok()
    });
    drop(first);
    driver.stop_crashing();
    network.stop_crashing();
    runtime().block_on(async {
        let pool = with_pool(0);
        let harness = Harness::over_all(driver, store, network, pool, START.after(1000)).await;
        settle().await;
        let acknowledged = acknowledged.lock().unwrap().clone();
        for (id, state) in &acknowledged {
            let now = harness.state(id).await.unwrap_or(SandboxState::Terminated);
            assert_eq!(now, *state, "{id} after {steps} steps");
        }
        let traces = harness.driver.traces();
        let records = harness.store.living().await.unwrap();
        assert_eq!(traces.len(), records.len(), "after {steps} steps: {traces:?} and {records:?}");
        let connected = harness.network.links();
        assert_eq!(connected.len(), records.len(), "after {steps} steps of the {component:?}: {connected:?}");
        assert_eq!(harness.network.policies(), records.len(), "after {steps} steps of the {component:?}");
        for record in records {
            let expected =
                if record.state() == SandboxState::Paused { Presence::Paused } else { Presence::Running };
            assert_eq!(traces[&record.id], expected, "after {steps} steps: {record:?}");
            harness.output(&record.id, "echo works").await;
        }
        harness.assert_clean().await;
    });
    finished
}

#[test]
fn a_crash_at_any_step_keeps_acknowledged_results_and_leaves_nothing() {
    for (component, min_steps) in [(Component::Driver, 10), (Component::Network, 5)] {
        for fault in [Fault::Before, Fault::After] {
            let finishes = |steps: &usize| finishes_before_crash(component, *steps, fault);
            let steps = (0..500).find(finishes).expect("the clients finish");
            assert!(steps > min_steps, "only {steps} steps of the {component:?} were tried");
        }
    }
}
