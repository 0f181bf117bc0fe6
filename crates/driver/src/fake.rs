//! An in-memory isolation backend for tests. Its agents are scripted and may be hostile; each operation can be made to fail or
//! to wait.
//!
//! Clones share one host, so that a test can open another engine on the same sandboxes. Concurrent calls for one sandbox are
//! recorded in [`FakeDriver::violations`].

mod agent;
mod disks;
mod files;
mod hold;
mod losses;
mod sandboxes;
mod stored_processes;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use api::{Isolation, SandboxId, SnapshotId};
use base::IgnorePoison;
use tokio::sync::watch;

use crate::{DriverError, DriverStep, Limits, MemoryKills, Presence, SandboxSpec};

pub use agent::AgentMode;
use agent::Guest;
use disks::Content;
use files::Disk;
use hold::HeldOp;
pub use hold::HoldGuard;

/// What the stored processes of a sandbox occupy.
const STORED_BYTES: u64 = 1 << 20;

/// The operations of a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DriverOp {
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
    CopyDisk,
    Capture,
    PrepareDisk,
    AdoptDisk,
    Hibernate,
    PageOut,
    Wake,
    DiscardMemory,
}

/// When an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Before it has an effect.
    Before,
    /// After it took effect.
    After,
}

#[derive(Clone, Default)]
pub struct FakeDriver {
    host: Arc<Host>,
}

#[derive(Default)]
struct Host {
    state: Mutex<State>,
    /// Operations whose calls wait, of one sandbox or of all.
    held_ops: watch::Sender<Vec<HeldOp>>,
}

#[derive(Default)]
struct State {
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    /// Their sizes, and what they contain once they are captured.
    snapshots: BTreeMap<SnapshotId, (u64, Option<Content>)>,
    /// What a disk occupies.
    disk_bytes: Option<u64>,
    prepared_disks: BTreeMap<SandboxId, PreparedDisk>,
    faults: VecDeque<(DriverOp, Fault)>,
    mode: AgentMode,
    calls: Vec<(DriverOp, SandboxId)>,
    busy: HashSet<SandboxId>,
    violations: Vec<String>,
    crash_after: Option<(usize, Fault)>,
    resource_reads: u64,
    are_disk_looks_failing: bool,
    /// Where files of snapshots are.
    exports: Option<disks::Exports>,
}

/// A disk, and stored processes.
type PreparedDisk = (Arc<Mutex<Disk>>, Option<Guest>);

/// A sandbox: its disk, and its processes if it is started.
struct Sandbox {
    isolation: Isolation,
    limits: Option<Limits>,
    disk: Arc<Mutex<Disk>>,
    guest: Option<Guest>,
    /// Its stored processes, and whether they were continued since.
    memory: Option<Guest>,
    is_memory_used: bool,
    memory_kills: MemoryKills,
    /// Until the sandbox is stopped.
    is_disk_read_only: bool,
}

impl Sandbox {
    fn presence(&self) -> Presence {
        match &self.guest {
            None if self.memory.is_some() && !self.is_memory_used => Presence::Hibernated,
            None => Presence::Stopped,
            Some(guest) if guest.is_frozen() => Presence::Paused,
            Some(_) => Presence::Running,
        }
    }
}

/// A call for one sandbox in progress.
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
        self.state.lock().ignore_poison()
    }

    /// The simulated crash of the caller, if this call reaches it: before or after the effect of the call.
    fn crash_point(&self) -> Option<Fault> {
        let mut state = self.state();
        let (crash_after, fault) = state.crash_after?;
        if state.calls.len() <= crash_after {
            return None;
        }
        state.crash_after = Some((crash_after, Fault::Before));
        Some(fault)
    }

    /// Records a call, waits while its operation is held, and carries it out unless it is to fail.
    async fn call<T>(
        &self,
        op: DriverOp,
        id: &SandboxId,
        work: impl FnOnce(&mut State) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        {
            let mut state = self.state();
            state.calls.push((op, id.clone()));
            if !state.busy.insert(id.clone()) {
                state.violations.push(format!("{op:?} of {id} during another call for it"));
            }
        }
        let _call = Call { host: self, id };
        tokio::task::yield_now().await;
        match self.crash_point() {
            None => {}
            Some(Fault::Before) => std::future::pending().await,
            Some(Fault::After) => {
                // The crashed caller does not see the result.
                let _ = work(&mut self.state());
                return std::future::pending().await;
            }
        }
        let mut held_ops = self.held_ops.subscribe();
        // Cannot fail: `self` has the sender.
        let _ = held_ops.wait_for(|held_ops| !held_ops.iter().any(|held| held.is(op, id))).await;
        let mut state = self.state();
        let fault = match state.faults.iter().position(|(faulty, _)| *faulty == op) {
            Some(index) => state.faults.remove(index).map(|(_, fault)| fault),
            None => None,
        };
        let failed = || DriverError::failed(DriverStep::Named(format!("{op:?}")), "made to fail by a test");
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

    /// Makes the next call of the operation fail. Calls of this function queue up.
    pub fn fail_next(&self, op: DriverOp, fault: Fault) {
        self.host.state().faults.push_back((op, fault));
    }

    /// Simulates a crash of the caller after `calls` calls, counted from the first one. The next call has no effect, or takes
    /// effect, depending on `next`. Neither it nor any later call returns.
    pub fn crash_after(&self, calls: usize, next: Fault) {
        self.host.state().crash_after = Some((calls, next));
    }

    /// Ends a simulated crash.
    pub fn stop_crashing(&self) {
        self.host.state().crash_after = None;
    }

    /// Sets what each disk occupies from now on.
    pub fn set_disk_bytes(&self, bytes: u64) {
        self.host.state().disk_bytes = Some(bytes);
    }

    /// Sets the behaviour of agents that start later.
    pub fn set_agent_mode(&self, mode: AgentMode) {
        self.host.state().mode = mode;
    }

    /// Sets the behaviour of one agent, from its next link on.
    pub fn set_agent_mode_of(&self, id: &SandboxId, mode: AgentMode) {
        if let Some(guest) = self.host.state().sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
            guest.set_agent_mode(mode);
        }
    }

    /// All sandboxes of which the host has a trace.
    pub fn traces(&self) -> BTreeMap<SandboxId, Presence> {
        let state = self.host.state();
        state.sandboxes.iter().map(|(id, sandbox)| (id.clone(), sandbox.presence())).collect()
    }

    /// The current limits of a sandbox.
    pub fn limits(&self, id: &SandboxId) -> Option<Limits> {
        self.host.state().sandboxes.get(id)?.limits
    }

    /// The number of calls of an operation.
    pub fn calls(&self, op: DriverOp) -> usize {
        self.host.state().calls.iter().filter(|(called, _)| *called == op).count()
    }

    /// All calls in order.
    pub fn log(&self) -> Vec<(DriverOp, SandboxId)> {
        self.host.state().calls.clone()
    }

    /// Violations of the contract by callers.
    pub fn violations(&self) -> Vec<String> {
        self.host.state().violations.clone()
    }
}

fn invalid_state<T>(id: &SandboxId, presence: Presence, action: &'static str) -> Result<T, DriverError> {
    Err(DriverError::InvalidState { id: id.clone(), presence, action })
}

impl State {
    fn presence(&self, id: &SandboxId) -> Presence {
        self.sandboxes.get(id).map_or(Presence::Absent, Sandbox::presence)
    }

    /// The sandbox's directory and disk. Creates them if they do not exist.
    fn get_or_create(&mut self, spec: &SandboxSpec) -> &mut Sandbox {
        let disk = disks::new_disk(self, spec);
        let memory = disks::new_memory(self, spec, &disk);
        self.sandboxes.entry(spec.id.clone()).or_insert_with(|| Sandbox {
            isolation: spec.isolation,
            limits: None,
            disk,
            guest: None,
            memory,
            is_memory_used: false,
            memory_kills: MemoryKills::default(),
            is_disk_read_only: false,
        })
    }

    /// The processes of a sandbox, if the sandbox is in the wanted state.
    fn guest(&self, id: &SandboxId, wanted: Presence, action: &'static str) -> Result<&Guest, DriverError> {
        let presence = self.presence(id);
        match self.sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
            Some(guest) if presence == wanted => Ok(guest),
            _ => invalid_state(id, presence, action),
        }
    }
}
