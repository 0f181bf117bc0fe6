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
type Heard = Arc<Mutex<BTreeMap<api::SandboxId, SandboxState>>>;

/// Two clients, each with a sandbox from its creation to its termination. Unfinished requests are not acknowledged.
async fn live(harness: &Harness, heard: &Heard) {
    let client = async || {
        let id = harness.create().await;
        let note = |state: Option<SandboxState>| {
            let mut heard = heard.lock().unwrap();
            match state {
                Some(state) => heard.insert(id.clone(), state),
                None => heard.remove(&id),
            };
        };
        note(Some(SandboxState::Running));
        harness.run(&id, "echo kept > file").await.unwrap();
        note(None);
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        note(Some(SandboxState::Paused));
        note(None);
        harness.run(&id, "cat file").await.unwrap();
        note(Some(SandboxState::Running));
        note(None);
        harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
        note(Some(SandboxState::Terminated));
    };
    tokio::join!(client(), client());
}

/// Whose steps are counted.
#[derive(Debug, Clone, Copy)]
enum Of {
    Driver,
    Network,
}

/// Crashes in the step after `steps`. Returns whether the clients finished before.
fn dies_after(of: Of, steps: usize, fault: Fault) -> bool {
    let (driver, store, heard) = (FakeDriver::new(), MemoryStore::new(), Heard::default());
    let network = FakeNetwork::beside(&driver);
    match of {
        Of::Driver => driver.crash_after(steps, fault),
        Of::Network => network.crash_after(steps, fault),
    }
    let first = runtime();
    let finished = first.block_on(async {
        let opening = Harness::over_all(driver.clone(), store.clone(), network.clone(), with_pool(1), START);
        // The clock advances only when all tasks wait.
        let living = async { live(&opening.await, &heard).await };
        tokio::time::timeout(Duration::from_millis(100), living).await.is_ok()
    });
    drop(first);
    driver.stop_crashing();
    network.stop_crashing();
    runtime().block_on(async {
        let pool = with_pool(0);
        let harness = Harness::over_all(driver, store, network, pool, START.after(1000)).await;
        settle().await;
        let heard = heard.lock().unwrap().clone();
        for (id, state) in &heard {
            let now = harness.state(id).await.unwrap_or(SandboxState::Terminated);
            assert_eq!(now, *state, "{id} after {steps} steps");
        }
        let traces = harness.driver.traces();
        let records = harness.store.living().await.unwrap();
        assert_eq!(traces.len(), records.len(), "after {steps} steps: {traces:?} and {records:?}");
        let connected = harness.network.links();
        assert_eq!(connected.len(), records.len(), "after {steps} steps of the {of:?}: {connected:?}");
        assert_eq!(harness.network.policies(), records.len(), "after {steps} steps of the {of:?}");
        for record in records {
            let wanted =
                if record.state == SandboxState::Paused { Presence::Paused } else { Presence::Running };
            assert_eq!(traces[&record.id], wanted, "after {steps} steps: {record:?}");
            harness.output(&record.id, "echo works").await;
        }
        harness.assert_clean().await;
    });
    finished
}

#[test]
fn a_crash_at_any_step_keeps_acknowledged_results_and_leaves_nothing() {
    for (of, most) in [(Of::Driver, 10), (Of::Network, 5)] {
        for fault in [Fault::Before, Fault::After] {
            let dies = |steps: &usize| dies_after(of, *steps, fault);
            let steps = (0..500).find(dies).expect("the clients come to an end");
            assert!(steps > most, "only {steps} steps of the {of:?} were tried");
        }
    }
}
