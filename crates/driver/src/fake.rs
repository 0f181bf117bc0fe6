//! An in-memory isolation backend for tests. Its agents are scripted and may be hostile; each operation can be made to fail or
//! to wait.
//!
//! Clones share one host, so that a test can open another engine on the same sandboxes. Concurrent calls for one sandbox are
//! recorded in [`FakeDriver::violations`].

mod agent;
mod detached;
mod detached_op;
mod disk;
mod file_op;
mod guest;
mod hold;
mod losses;
mod script;
mod snapshot;
mod transfer;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;
use base::IgnorePoison;
use tokio::sync::watch;

use crate::{
    ByteStream, DiskCopy, DiskUse, Driver, DriverError, Limits, MemoryKills, NetworkHook, Presence,
    ResourceUse, SandboxSpec, SnapshotFile, SnapshotScope,
};

use agent::Guest;
use disk::Disk;
pub use guest::AgentMode;
use hold::HeldOp;
pub use hold::HoldGuard;
use snapshot::{Content, FakeCopy};

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
    exports: Option<transfer::Exports>,
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
        let failed = || DriverError::failed(format!("{op:?}"), "made to fail by a test");
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

/// Calls the network hook with a file in place of a network namespace, which the fake lacks.
fn call_network_hook(hook: &NetworkHook) -> Result<(), DriverError> {
    let none = std::fs::File::open("/dev/null")
        .map_err(|error| DriverError::failed("connect to the network", error))?;
    hook(none.as_fd()).map_err(|error| DriverError::failed("connect to the network", error))
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
        let disk = snapshot::new_disk(self, spec);
        let memory = snapshot::new_memory(self, spec, &disk);
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

#[async_trait]
impl Driver for FakeDriver {
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            state.get_or_create(spec);
            Ok(())
        };
        self.host.call(DriverOp::Create, &spec.id, work).await
    }

    async fn start(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(&spec.id);
            if matches!(presence, Presence::Running | Presence::Paused) {
                return invalid_state(&spec.id, presence, "start");
            }
            let mode = state.mode;
            let sandbox = state.get_or_create(spec);
            sandbox.limits = Some(spec.limits);
            sandbox.guest = Some(Guest::new(mode, Arc::clone(&sandbox.disk)));
            sandbox.memory_kills = MemoryKills::default();
            Ok(())
        };
        let started = self.host.call(DriverOp::Start, &spec.id, work).await;
        // The host is not locked here, because the hook may use it. A start that failed after its effect calls the hook as well.
        let is_running = self.traces().get(&spec.id) == Some(&Presence::Running);
        let connected = network.filter(|_| is_running).map_or(Ok(()), |hook| call_network_hook(&hook));
        started.and(connected)
    }

    fn can_store_processes(&self, isolation: Isolation) -> bool {
        isolation == Isolation::Gvisor
    }

    async fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let work = |state: &mut State| match state.sandboxes.get_mut(id) {
            Some(sandbox) if sandbox.isolation == Isolation::Container => {
                Err(DriverError::failed("hibernate the sandbox", "a container cannot"))
            }
            Some(sandbox) if sandbox.guest.is_some() => {
                sandbox.memory = sandbox.guest.take().map(Guest::store);
                sandbox.is_memory_used = false;
                Ok(STORED_BYTES)
            }
            _ => invalid_state(id, state.presence(id), "hibernate"),
        };
        self.host.call(DriverOp::Hibernate, id, work).await
    }

    async fn page_out(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let work = |state: &mut State| match state.presence(id) {
            Presence::Paused => Ok(1 << 20),
            presence => invalid_state(id, presence, "page out"),
        };
        self.host.call(DriverOp::PageOut, id, work).await
    }

    async fn wake(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(&spec.id);
            let Some(sandbox) = state.sandboxes.get_mut(&spec.id) else {
                return invalid_state(&spec.id, presence, "wake");
            };
            let Some(memory) = sandbox.memory.as_ref().filter(|_| sandbox.guest.is_none()) else {
                return invalid_state(&spec.id, presence, "wake");
            };
            sandbox.limits = Some(spec.limits);
            sandbox.guest = Some(memory.continued());
            sandbox.is_memory_used = true;
            sandbox.memory_kills = MemoryKills::default();
            Ok(())
        };
        let woken = self.host.call(DriverOp::Wake, &spec.id, work).await;
        let is_running = self.traces().get(&spec.id) == Some(&Presence::Running);
        let connected = network.filter(|_| is_running).map_or(Ok(()), |hook| call_network_hook(&hook));
        woken.and(connected)
    }

    async fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.memory = None;
            }
            Ok(())
        };
        self.host.call(DriverOp::DiscardMemory, id, work).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host
            .call(DriverOp::Pause, id, |state| state.guest(id, Presence::Running, "pause").map(Guest::freeze))
            .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host
            .call(DriverOp::Resume, id, |state| state.guest(id, Presence::Paused, "resume").map(Guest::thaw))
            .await
    }

    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| match state.sandboxes.get_mut(&spec.id) {
            Some(sandbox) if sandbox.guest.is_some() => {
                sandbox.limits = Some(spec.limits);
                Ok(())
            }
            _ => invalid_state(&spec.id, state.presence(&spec.id), "limit"),
        };
        self.host.call(DriverOp::Limit, &spec.id, work).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.guest = None;
            }
            Ok(())
        };
        self.host.call(DriverOp::Kill, id, work).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            if let Some(sandbox) = state.sandboxes.get_mut(id) {
                sandbox.guest = None;
                sandbox.is_disk_read_only = false;
                sandbox.limits = None;
            }
            Ok(())
        };
        self.host.call(DriverOp::Stop, id, work).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            state.sandboxes.remove(id);
            state.prepared_disks.remove(id);
            Ok(())
        };
        self.host.call(DriverOp::Destroy, id, work).await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError> {
        let work =
            |state: &mut State| match state.sandboxes.get(id).and_then(|sandbox| sandbox.guest.as_ref()) {
                Some(guest) => Ok(guest.connect()),
                None => Err(DriverError::failed("connect to the agent", "no process listens")),
            };
        self.host.call(DriverOp::Connect, id, work).await
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        self.host.call(DriverOp::Inspect, id, |state| Ok(state.presence(id))).await
    }

    async fn last_seen_running_ms(&self, _id: &SandboxId) -> Result<Option<u64>, DriverError> {
        Ok(None)
    }

    async fn disk_use(&self, id: &SandboxId) -> Result<DiskUse, DriverError> {
        let state = self.host.state();
        let is_stored = state.sandboxes.get(id).is_some_and(|sandbox| sandbox.memory.is_some());
        let stored = if is_stored { STORED_BYTES } else { 0 };
        Ok(DiskUse { allocated: state.disk_bytes.unwrap_or_default(), stored, ..DiskUse::default() })
    }

    async fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.host.state().with_read_only_disks()
    }

    /// One second of CPU time more with each call.
    async fn resource_use(&self, id: &SandboxId) -> Result<Option<ResourceUse>, DriverError> {
        let mut state = self.host.state();
        if state.presence(id) != Presence::Running {
            return Ok(None);
        }
        state.resource_reads += 1;
        let cpu_us = state.resource_reads * 1_000_000;
        Ok(Some(ResourceUse { cpu_us, memory: 12 << 20, memory_cache: 2 << 20, disk: 3 << 20 }))
    }

    async fn memory_kills(&self, id: &SandboxId) -> Option<MemoryKills> {
        self.host.state().sandboxes.get(id).map(|sandbox| sandbox.memory_kills)
    }

    async fn with_replaced_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(self.host.state().sandboxes_where(Sandbox::has_replaced_disk))
    }

    async fn copy_disk(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Box<dyn DiskCopy>, DriverError> {
        Ok(Box::new(FakeCopy::begin(&self.host, id, snapshot).await?))
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        self.host.state().snapshots.remove(snapshot);
        Ok(())
    }

    async fn discard_snapshot_processes(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        if let Some((_, Some(content))) = self.host.state().snapshots.get_mut(snapshot) {
            content.discard_processes();
        }
        Ok(())
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        Ok(self.host.state().snapshots.keys().cloned().collect())
    }

    fn snapshot_layer(&self, snapshot: &SnapshotId) -> PathBuf {
        snapshot::layer(snapshot)
    }

    async fn snapshot_files(
        &self,
        snapshot: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<Vec<SnapshotFile>, DriverError> {
        transfer::files(&self.host, snapshot, scope)
            .map_err(|error| DriverError::failed("list the files of a snapshot", error))
    }

    async fn snapshot_bytes(&self, snapshot: &SnapshotId) -> Result<u64, DriverError> {
        Ok(self.host.state().snapshots.get(snapshot).map_or(0, |(bytes, _)| *bytes))
    }

    async fn receive_snapshot(
        &self,
        snapshot: &SnapshotId,
        names: Vec<String>,
    ) -> Result<Vec<PathBuf>, DriverError> {
        transfer::clear(&self.host, snapshot)
            .map_err(|error| DriverError::failed("make room for a snapshot", error))?;
        let receive = |name: &String| transfer::path(&self.host, snapshot, name, "new");
        names
            .iter()
            .map(receive)
            .collect::<io::Result<_>>()
            .map_err(|error| DriverError::failed("make room for a snapshot", error))
    }

    async fn complete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        transfer::complete(&self.host, snapshot)
            .map_err(|error| DriverError::failed("complete a snapshot", error))
    }

    async fn prepare_disk(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let disk = snapshot::new_disk(state, spec);
            let memory = snapshot::new_memory(state, spec, &disk);
            state.prepared_disks.insert(spec.id.clone(), (disk, memory));
            Ok(())
        };
        self.host.call(DriverOp::PrepareDisk, &spec.id, work).await
    }

    async fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(id);
            if state.prepared_disks.contains_key(id)
                && !matches!(presence, Presence::Stopped | Presence::Hibernated)
            {
                return invalid_state(id, presence, "replace the disk of");
            }
            if let (Some((disk, memory)), Some(sandbox)) =
                (state.prepared_disks.remove(id), state.sandboxes.get_mut(id))
            {
                (sandbox.disk, sandbox.memory, sandbox.is_memory_used) = (disk, memory, false);
            }
            Ok(())
        };
        self.host.call(DriverOp::AdoptDisk, id, work).await
    }

    async fn discard_prepared_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host.state().prepared_disks.remove(id);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(self.host.state().sandboxes.keys().cloned().collect())
    }
}
