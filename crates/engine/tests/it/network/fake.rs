//! An in-memory network. Each step can be made to fail, and the daemon can be made to crash before or after it.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

use api::{EgressPolicy, SandboxId};
use async_trait::async_trait;
use driver::fake::{DriverOp, FakeDriver, Fault};
use net::{Guest, NetError, Network, Usage};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Recover,
    Plug,
    Apply,
    Unplug,
}

/// A call, and the last operation of the driver for the same sandbox before it.
pub type Call = (Step, Option<DriverOp>);

/// Clones share one network.
#[derive(Clone, Default)]
pub struct FakeNetwork {
    driver: FakeDriver,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    calls: Vec<(SandboxId, Call)>,
    steps: usize,
    links: BTreeMap<SandboxId, u32>,
    policies: BTreeMap<SandboxId, EgressPolicy>,
    faults: VecDeque<(Step, Fault)>,
    last: Option<(usize, Fault)>,
    dead: bool,
    violations: Vec<String>,
}

impl FakeNetwork {
    /// A network that crashes together with a driver.
    pub fn with_driver(driver: &FakeDriver) -> Self {
        Self { driver: driver.clone(), state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn fail_next(&self, step: Step, fault: Fault) {
        self.state().faults.push_back((step, fault));
    }

    /// Makes the daemon crash after `steps` steps.
    pub fn crash_after(&self, steps: usize, next: Fault) {
        self.state().last = Some((steps, next));
    }

    pub fn stop_crashing(&self) {
        let mut state = self.state();
        (state.last, state.dead) = (None, false);
    }

    pub fn links(&self) -> Vec<SandboxId> {
        self.state().links.keys().cloned().collect()
    }

    pub fn policy(&self, id: &SandboxId) -> Option<EgressPolicy> {
        self.state().policies.get(id).cloned()
    }

    pub fn policies(&self) -> usize {
        self.state().policies.len()
    }

    pub fn calls_of(&self, id: &SandboxId) -> Vec<Call> {
        self.state().calls.iter().filter(|(called, _)| called == id).map(|(_, call)| *call).collect()
    }

    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// Records the step and carries it out, unless it is to fail. `None` after the crash.
    fn step(
        &self,
        step: Step,
        guest: Option<&Guest>,
        work: impl FnOnce(&mut State),
    ) -> Option<Result<(), NetError>> {
        let before = guest.and_then(|guest| {
            let calls = self.driver.log().into_iter().rev();
            calls
                .filter(|(_, id)| *id == guest.id)
                .map(|(verb, _)| verb)
                .find(|verb| *verb != DriverOp::Inspect)
        });
        let mut state = self.state();
        if state.dead {
            return None;
        }
        state.steps += 1;
        if let Some(guest) = guest {
            state.calls.push((guest.id.clone(), (step, before)));
        }
        if let Some((last, fault)) = state.last
            && state.steps > last
        {
            if fault == Fault::After {
                work(&mut state);
            }
            state.dead = true;
            self.driver.crash_after(0, Fault::Before);
            return None;
        }
        let fault = state.faults.iter().position(|(faulty, _)| *faulty == step);
        let fault = fault.and_then(|index| state.faults.remove(index)).map(|(_, fault)| fault);
        if fault != Some(Fault::Before) {
            work(&mut state);
        }
        Some(if fault.is_some() { Err(NetError::new("step", "made to fail by a test")) } else { Ok(()) })
    }
}

#[async_trait]
impl Network for FakeNetwork {
    async fn recover(&self, living: &[(Guest, EgressPolicy)]) -> Result<(), NetError> {
        let work = |state: &mut State| {
            state
                .links
                .retain(|id, slot| living.iter().any(|(guest, _)| guest.id == *id && guest.slot == *slot));
            state.policies =
                living.iter().map(|(guest, policy)| (guest.id.clone(), policy.clone())).collect();
        };
        match self.step(Step::Recover, None, work) {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    fn plug(&self, guest: &Guest, _namespace: BorrowedFd<'_>) -> Result<(), NetError> {
        let work = |state: &mut State| {
            if state.links.iter().any(|(id, slot)| *slot == guest.slot && *id != guest.id) {
                state.violations.push(format!("slot {} has two sandboxes", guest.slot));
            }
            state.links.insert(guest.id.clone(), guest.slot);
        };
        // Without effect after the crash, because the driver does not answer.
        self.step(Step::Plug, Some(guest), work).unwrap_or(Err(NetError::new("plug", "the daemon is dead")))
    }

    async fn apply(&self, guest: &Guest, policy: &EgressPolicy) -> Result<(), NetError> {
        let work = |state: &mut State| {
            state.policies.insert(guest.id.clone(), policy.clone());
        };
        match self.step(Step::Apply, Some(guest), work) {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    async fn unplug(&self, guest: &Guest) -> Result<(), NetError> {
        let work = |state: &mut State| {
            state.links.remove(&guest.id);
            state.policies.remove(&guest.id);
        };
        match self.step(Step::Unplug, Some(guest), work) {
            Some(done) => done,
            None => std::future::pending().await,
        }
    }

    async fn usage(&self, guest: &Guest) -> Usage {
        self.total_usage(std::slice::from_ref(guest))
    }

    fn total_usage(&self, guests: &[Guest]) -> Usage {
        let count = guests.len() as u64;
        let bytes_out = guests.iter().map(|guest| u64::from(guest.slot) + 1).sum();
        Usage { bytes_out, bytes_in: 2 * count, connections: 3 * count }
    }

    async fn close(&self) {}

    async fn retire(&self) -> Result<(), NetError> {
        Ok(())
    }
}
