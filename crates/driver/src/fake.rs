//! An isolation backend in memory, for tests of the layers above. Its agents are scripted and may be hostile; each verb can be made
//! to fail or to wait.
//!
//! A clone is the same host, so that a test can let an engine die and start another on what is there. It also watches its
//! callers: calls for one sandbox that overlap are kept in [`FakeDriver::violations`].

mod agent;
mod disk;
mod errand;
mod guest;
mod kept;
mod remains;
mod script;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::SandboxId;
use async_trait::async_trait;
use tokio::sync::watch;

use crate::{ByteStream, Driver, DriverError, Limits, Plug, Presence, SandboxSpec};

use agent::Guest;
use disk::Disk;
pub use guest::Manner;

/// What a driver can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    Create,
    Start,
    Pause,
    Resume,
    Limit,
    Kill,
    Stop,
    Destroy,
    Connect,
    Inspect,
}

/// Where a verb that is made to fail does so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing was done.
    Before,
    /// All was done, and nobody heard of it.
    After,
}

#[derive(Clone, Default)]
pub struct FakeDriver {
    host: Arc<Host>,
}

#[derive(Default)]
struct Host {
    state: Mutex<State>,
    /// Verbs that wait.
    held: watch::Sender<Vec<Verb>>,
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    faults: VecDeque<(Verb, Fault)>,
    manner: Manner,
    calls: Vec<(Verb, SandboxId)>,
    busy: HashSet<SandboxId>,
    violations: Vec<String>,
    last: Option<(usize, Fault)>,
}

/// What there is of a sandbox: its disk, and perhaps processes.
struct Sandbox {
    limits: Option<Limits>,
    disk: Arc<Mutex<Disk>>,
    guest: Option<Guest>,
}

impl Sandbox {
    fn presence(&self) -> Presence {
        match &self.guest {
            None => Presence::Stopped,
            Some(guest) if guest.is_frozen() => Presence::Paused,
            Some(_) => Presence::Running,
        }
    }
}

/// While this lives, a verb waits. See [`FakeDriver::hold`].
pub struct Held {
    host: Arc<Host>,
    verb: Verb,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.host.held.send_modify(|held| {
            if let Some(index) = held.iter().position(|verb| *verb == self.verb) {
                held.remove(index);
            }
        });
    }
}

/// One call for one sandbox, under way.
struct Call<'a> {
    host: &'a Host,
    id: &'a SandboxId,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.host.state().busy.remove(self.id);
    }
}

impl Host {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller should have died before this call or, once, in its end.
    fn past_the_last(&self) -> Option<Fault> {
        let mut state = self.state();
        let (last, fault) = state.last?;
        if state.calls.len() <= last {
            return None;
        }
        state.last = Some((last, Fault::Before));
        Some(fault)
    }

    /// Notes a call, waits if its verb is held, and does it unless it is to fail.
    async fn call<T>(
        &self,
        verb: Verb,
        id: &SandboxId,
        work: impl FnOnce(&mut State) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        {
            let mut state = self.state();
            state.calls.push((verb, id.clone()));
            if !state.busy.insert(id.clone()) {
                let violation = format!("{verb:?} of {id} while another call for it was under way");
                state.violations.push(violation);
            }
        }
        let _call = Call { host: self, id };
        tokio::task::yield_now().await;
        match self.past_the_last() {
            None => {}
            Some(Fault::Before) => std::future::pending().await,
            Some(Fault::After) => {
                // Whether it succeeded nobody will hear.
                let _ = work(&mut self.state());
                return std::future::pending().await;
            }
        }
        let mut held = self.held.subscribe();
        // The sender is our own, so waiting cannot fail.
        let _ = held.wait_for(|held| !held.contains(&verb)).await;
        let mut state = self.state();
        let fault = match state.faults.iter().position(|(faulty, _)| *faulty == verb) {
            Some(index) => state.faults.remove(index).map(|(_, fault)| fault),
            None => None,
        };
        let failed = || DriverError::failed(format!("{verb:?}"), "a test wants it so");
        if fault == Some(Fault::Before) {
            return Err(failed());
        }
        let done = work(&mut state)?;
        if fault == Some(Fault::After) { Err(failed()) } else { Ok(done) }
    }
}

impl FakeDriver {
    pub fn new() -> Self {
        Self::default()
    }

    /// The next call of the verb fails; called twice, the next two, in turn.
    pub fn fail_next(&self, verb: Verb, fault: Fault) {
        self.host.state().faults.push_back((verb, fault));
    }

    /// Calls of the verb wait until what is returned is dropped.
    pub fn hold(&self, verb: Verb) -> Held {
        self.host.held.send_modify(|held| held.push(verb));
        Held { host: Arc::clone(&self.host), verb }
    }

    /// So many calls are answered, counted from the first of all. The next does nothing, or does what it should, and like
    /// those after it is never answered: as if its caller had died at that instant.
    pub fn answer_only(&self, calls: usize, next: Fault) {
        self.host.state().last = Some((calls, next));
    }

    /// Answers again.
    pub fn answer_all(&self) {
        self.host.state().last = None;
    }

    /// How agents that start from now on behave.
    pub fn set_manner(&self, manner: Manner) {
        self.host.state().manner = manner;
    }

    /// How a sandbox's agent behaves from its next link on.
    pub fn set_manner_of(&self, id: &SandboxId, manner: Manner) {
        if let Some(guest) = self.host.state().sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
            guest.set_manner(manner);
        }
    }

    /// Every process of the sandbox ends, and nobody asked for it.
    pub fn crash(&self, id: &SandboxId) {
        if let Some(sandbox) = self.host.state().sandboxes.get_mut(id) {
            sandbox.guest = None;
        }
    }

    /// The machine goes down: every process ends.
    pub fn reboot(&self) {
        self.host.state().sandboxes.values_mut().for_each(|sandbox| sandbox.guest = None);
    }

    /// The agent closes its link and waits for another.
    pub fn hang_up(&self, id: &SandboxId) {
        if let Some(guest) = self.host.state().sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
            guest.hang_up();
        }
    }

    /// Everything of which there is any trace.
    pub fn traces(&self) -> BTreeMap<SandboxId, Presence> {
        let state = self.host.state();
        state.sandboxes.iter().map(|(id, sandbox)| (id.clone(), sandbox.presence())).collect()
    }

    /// The limits that a sandbox was last given.
    pub fn limits(&self, id: &SandboxId) -> Option<Limits> {
        self.host.state().sandboxes.get(id)?.limits
    }

    /// How often a verb was called.
    pub fn calls(&self, verb: Verb) -> usize {
        self.host.state().calls.iter().filter(|(called, _)| *called == verb).count()
    }

    /// Every call, in its order.
    pub fn log(&self) -> Vec<(Verb, SandboxId)> {
        self.host.state().calls.clone()
    }

    /// Where a caller broke the rules.
    pub fn violations(&self) -> Vec<String> {
        self.host.state().violations.clone()
    }
}

/// What is made of memory has no namespace: a plug gets a file that is none.
fn plug_in(plug: &Plug) -> Result<(), DriverError> {
    let none = std::fs::File::open("/dev/null").map_err(|error| DriverError::failed("plug in", error))?;
    plug(none.as_fd()).map_err(|error| DriverError::failed("plug in", error))
}

fn unsuited<T>(id: &SandboxId, presence: Presence, action: &'static str) -> Result<T, DriverError> {
    Err(DriverError::Unsuited { id: id.clone(), presence, action })
}

impl State {
    fn presence(&self, id: &SandboxId) -> Presence {
        self.sandboxes.get(id).map_or(Presence::Absent, Sandbox::presence)
    }

    /// The sandbox's directory and disk, made if they are not there.
    fn lay_out(&mut self, spec: &SandboxSpec) -> &mut Sandbox {
        self.sandboxes.entry(spec.id.clone()).or_insert_with(|| Sandbox {
            limits: None,
            disk: Arc::default(),
            guest: None,
        })
    }

    /// The guest of a sandbox that is in the wanted state.
    fn guest(&self, id: &SandboxId, wanted: Presence, action: &'static str) -> Result<&Guest, DriverError> {
        let presence = self.presence(id);
        match self.sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
            Some(guest) if presence == wanted => Ok(guest),
            _ => unsuited(id, presence, action),
        }
    }
}

#[async_trait]
impl Driver for FakeDriver {
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            state.lay_out(spec);
            Ok(())
        };
        self.host.call(Verb::Create, &spec.id, work).await
    }

    async fn start(&self, spec: &SandboxSpec, plug: Option<Plug>) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(&spec.id);
            if matches!(presence, Presence::Running | Presence::Paused) {
                return unsuited(&spec.id, presence, "start");
            }
            let manner = state.manner;
            let sandbox = state.lay_out(spec);
            sandbox.limits = Some(spec.limits);
            sandbox.guest = Some(Guest::new(manner, Arc::clone(&sandbox.disk)));
            Ok(())
        };
        let started = self.host.call(Verb::Start, &spec.id, work).await;
        // Not while the host is locked: a plug may look at it. What was done and not heard of was plugged too.
        let runs = self.traces().get(&spec.id) == Some(&Presence::Running);
        let plugged = plug.filter(|_| runs).map_or(Ok(()), |plug| plug_in(&plug));
        started.and(plugged)
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host
            .call(Verb::Pause, id, |state| state.guest(id, Presence::Running, "pause").map(Guest::freeze))
            .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host
            .call(Verb::Resume, id, |state| state.guest(id, Presence::Paused, "resume").map(Guest::thaw))
            .await
    }

    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| match state.sandboxes.get_mut(&spec.id) {
            Some(sandbox) if sandbox.guest.is_some() => {
                sandbox.limits = Some(spec.limits);
                Ok(())
            }
            _ => unsuited(&spec.id, state.presence(&spec.id), "limit"),
        };
        self.host.call(Verb::Limit, &spec.id, work).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.guest = None;
            }
            Ok(())
        };
        self.host.call(Verb::Kill, id, work).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.guest = None;
                sandbox.limits = None;
            }
            Ok(())
        };
        self.host.call(Verb::Stop, id, work).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            state.sandboxes.remove(id);
            Ok(())
        };
        self.host.call(Verb::Destroy, id, work).await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError> {
        let work =
            |state: &mut State| match state.sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
                Some(guest) => Ok(guest.connect()),
                None => Err(DriverError::failed("connect to the agent", "nobody listens")),
            };
        self.host.call(Verb::Connect, id, work).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        self.host.call(Verb::Inspect, id, |state| Ok(state.presence(id))).await
    }

    async fn last_sign_ms(&self, _id: &SandboxId) -> Result<Option<u64>, DriverError> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(self.host.state().sandboxes.keys().cloned().collect())
    }
}
