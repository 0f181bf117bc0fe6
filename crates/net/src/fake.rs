//! A network in memory, for tests of the layers above: it writes down what is asked of it, and fails when it is told to.

use std::collections::{HashMap, HashSet};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use api::EgressPolicy;
use async_trait::async_trait;

use crate::contract::{Guest, NetError, Network, Usage};

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Recover(Vec<Guest>),
    Plug(Guest),
    Apply(Guest, EgressPolicy),
    Unplug(Guest),
    Close,
    Retire,
}

impl Call {
    fn step(&self) -> &'static str {
        match self {
            Self::Recover(_) => "recover",
            Self::Plug(_) => "plug",
            Self::Apply(..) => "apply",
            Self::Unplug(_) => "unplug",
            Self::Close => "close",
            Self::Retire => "retire",
        }
    }
}

#[derive(Default)]
pub struct FakeNetwork {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    calls: Vec<Call>,
    failing: HashSet<&'static str>,
    plugged: HashSet<u32>,
    policies: HashMap<u32, EgressPolicy>,
    usage: HashMap<u32, Usage>,
}

impl FakeNetwork {
    /// Everything that was asked, in order; what failed is among it.
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// The next call of a step fails: `plug`, `apply`, `unplug`, `recover` or `retire`.
    pub fn fail_next(&self, step: &'static str) {
        self.state().failing.insert(step);
    }

    /// The policy in force for a slot.
    pub fn policy(&self, slot: u32) -> Option<EgressPolicy> {
        self.state().policies.get(&slot).cloned()
    }

    pub fn set_usage(&self, slot: u32, usage: Usage) {
        self.state().usage.insert(slot, usage);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn called(&self, call: Call) -> Result<MutexGuard<'_, State>, NetError> {
        let mut state = self.state();
        let step = call.step();
        state.calls.push(call);
        if state.failing.remove(step) {
            return Err(NetError::new(step, "as the test wants"));
        }
        Ok(state)
    }
}

#[async_trait]
impl Network for FakeNetwork {
    async fn recover(&self, living: &[(Guest, EgressPolicy)]) -> Result<(), NetError> {
        let mut state =
            self.called(Call::Recover(living.iter().map(|(guest, _)| guest.clone()).collect()))?;
        state.policies = living.iter().map(|(guest, policy)| (guest.slot, policy.clone())).collect();
        let policies: HashSet<u32> = state.policies.keys().copied().collect();
        state.plugged.retain(|slot| policies.contains(slot));
        Ok(())
    }

    fn plug(&self, guest: &Guest, _namespace: BorrowedFd<'_>) -> Result<(), NetError> {
        self.called(Call::Plug(guest.clone()))?.plugged.insert(guest.slot);
        Ok(())
    }

    fn is_plugged(&self, guest: &Guest) -> bool {
        self.state().plugged.contains(&guest.slot)
    }

    async fn apply(&self, guest: &Guest, policy: &EgressPolicy) -> Result<(), NetError> {
        self.called(Call::Apply(guest.clone(), policy.clone()))?.policies.insert(guest.slot, policy.clone());
        Ok(())
    }

    async fn unplug(&self, guest: &Guest) -> Result<(), NetError> {
        let mut state = self.called(Call::Unplug(guest.clone()))?;
        state.plugged.remove(&guest.slot);
        state.policies.remove(&guest.slot);
        Ok(())
    }

    fn usage(&self, guest: &Guest) -> Usage {
        self.state().usage.get(&guest.slot).copied().unwrap_or_default()
    }

    async fn close(&self) {
        self.state().calls.push(Call::Close);
    }

    async fn retire(&self) -> Result<(), NetError> {
        self.called(Call::Retire).map(drop)
    }
}
