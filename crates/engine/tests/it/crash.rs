//! The daemon dies before and after every step on its host: its runtime is dropped with every task it has, and another takes over the host
//! and the records.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::SandboxState;
use driver::Presence;
use driver::fake::{FakeDriver, Fault};
use store::{MemoryStore, Store};

use crate::network::fake::FakeNetwork;
use crate::world::{START, World, runtime, settle, with_pool};

/// What was acknowledged before the end.
type Heard = Arc<Mutex<BTreeMap<api::SandboxId, SandboxState>>>;

/// Two clients, each with a sandbox through its whole life; what is under way counts as unheard of.
async fn live(world: &World, heard: &Heard) {
    let client = async || {
        let id = world.create().await;
        let note = |state: Option<SandboxState>| {
            let mut heard = heard.lock().unwrap();
            match state {
                Some(state) => heard.insert(id.clone(), state),
                None => heard.remove(&id),
            };
        };
        note(Some(SandboxState::Running));
        world.run(&id, "echo kept > file").await.unwrap();
        note(None);
        world.engine.pause("test", &id).await.unwrap();
        note(Some(SandboxState::Paused));
        note(None);
        world.run(&id, "cat file").await.unwrap();
        note(Some(SandboxState::Running));
        note(None);
        world.engine.terminate("test", &id, "request").await.unwrap();
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

/// Dies in the step after so many; whether it had come to its end before.
fn dies_after(of: Of, steps: usize, fault: Fault) -> bool {
    let (driver, store, heard) = (FakeDriver::new(), MemoryStore::new(), Heard::default());
    let network = FakeNetwork::beside(&driver);
    match of {
        Of::Driver => driver.answer_only(steps, fault),
        Of::Network => network.answer_only(steps, fault),
    }
    let first = runtime();
    let finished = first.block_on(async {
        let opening = World::over_all(driver.clone(), store.clone(), network.clone(), with_pool(1), START);
        // Time passes only when nothing else can happen.
        let living = async { live(&opening.await, &heard).await };
        tokio::time::timeout(Duration::from_millis(100), living).await.is_ok()
    });
    drop(first);
    driver.answer_all();
    network.answer_all();
    runtime().block_on(async {
        let pool = with_pool(0);
        let world = World::over_all(driver, store, network, pool, START.after(1000)).await;
        settle().await;
        let heard = heard.lock().unwrap().clone();
        for (id, state) in &heard {
            let now = world.state(id).await.unwrap_or(SandboxState::Terminated);
            assert_eq!(now, *state, "{id} after {steps} steps");
        }
        let traces = world.driver.traces();
        let records = world.store.living().await.unwrap();
        assert_eq!(traces.len(), records.len(), "after {steps} steps: {traces:?} and {records:?}");
        let connected = world.network.links();
        assert_eq!(connected.len(), records.len(), "after {steps} steps of the {of:?}: {connected:?}");
        assert_eq!(world.network.policies(), records.len(), "after {steps} steps of the {of:?}");
        for record in records {
            let wanted =
                if record.state == SandboxState::Paused { Presence::Paused } else { Presence::Running };
            assert_eq!(traces[&record.id], wanted, "after {steps} steps: {record:?}");
            world.output(&record.id, "echo works").await;
        }
        world.is_clean().await;
    });
    finished
}

#[test]
fn whenever_the_daemon_dies_what_it_said_holds_and_nothing_is_left() {
    for (of, most) in [(Of::Driver, 10), (Of::Network, 5)] {
        for fault in [Fault::Before, Fault::After] {
            let dies = |steps: &usize| dies_after(of, *steps, fault);
            let steps = (0..500).find(dies).expect("the clients come to an end");
            assert!(steps > most, "only {steps} steps of the {of:?} were tried");
        }
    }
}
