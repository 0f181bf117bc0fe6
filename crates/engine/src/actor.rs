//! The actor of a sandbox: the one task that changes it.
//!
//! ```text
//!               pause / idle                         processes ended
//!   Running ----------------> Frozen      Running, Frozen ----------------> Stopped
//!      ^ <------------------------+                                            |
//!      |         resume                                                        |
//!      +-----------------------------------------------------------------------+
//!                      resume: started again on its disk
//!   Running, Frozen -- hibernate --> Hibernated -- resume: continued --> Running
//!   Running -- pause without processes --> Stopped
//!   Frozen, Hibernated -- cold resume: started again on its disk --> Running
//!   any ---- terminate, end of the lifetime or the retention ----> the actor ends
//! ```
//!
//! Clients see `Frozen`, `Hibernated` and `Stopped` as `paused`. Each operation acts on the host, commits the record, publishes it
//! and replies, in this order. If the commit fails, the effect on the host is undone and the caller gets the error. A termination commits
//! first: after a crash the recovery finds no record and removes the sandbox.
//!
//! This file has the actor's state, its loop and the changes of its settings. `lifecycle` has pause, resume, terminate and the
//! loss of processes, `hibernation` stores and continues them, `stop` ends them and keeps the disk, `snapshot` and `rollback` copy
//! and replace the disk, `admission` lets callers work inside. `ports` and `network_policy` compute the next record, and `timeouts`
//! knows when an idle or expired sandbox is due.

mod admission;
mod hibernation;
mod lifecycle;
mod network_policy;
mod ports;
mod rollback;
mod snapshot;
mod stop;
mod timeouts;
pub mod timer;

use hibernation::MEMORY_PRESSURE;
pub use lifecycle::{DISK_PRESSURE, ON_REQUEST, PROCESSES_LOST};

use std::ops::ControlFlow;
use std::sync::Arc;

use api::{EventKind, RunId, SandboxId, SandboxState};
use driver::{Limits, SandboxSpec};
use rules::{ExposeRequest, NetworkChange, Operation, Prices, TimeMs, Watch, decide};
use serde_json::Value;
use store::{Batch, ExposedPort, NewEvent, SandboxRecord, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::admission::Workload;
use self::network_policy::PolicyEnforcement;
use self::timeouts::Timeouts;
use crate::actor::timer::Timer;
use crate::capacity::ledger::{Ledger, QuotaCheck, Reservation, RetainedBytes, SlotLease};
use crate::capacity::provision::Provisioner;
use crate::counters::Counters;
use crate::detached::{AgentAvailability, ExecutionRegistry, SandboxExecutions};
use crate::error::EngineError;
use crate::host::Host;
use crate::link::Agent;
use crate::record::events;
use crate::record::interruptions::{Affected, Interruptions, WorkInProgress};
use crate::record::stamped_store::StampedStore;
use crate::record::status::{ProcessLoss, Status};
use crate::registry::SandboxRegistry;
use crate::registry::mailbox::{ActorHandle, ActorRequest, MAILBOX, Processes, TimeoutChange, WorkKind};
use crate::snapshots::SnapshotRegistry;
use crate::tasks::Tasks;

/// What the actors of an engine share.
pub struct ActorContext {
    pub host: Arc<Host>,
    pub provisioner: Arc<Provisioner>,
    pub stamped_store: StampedStore,
    pub counters: Arc<Counters>,
    pub registry: Arc<SandboxRegistry>,
    pub snapshots: Arc<SnapshotRegistry>,
    pub detached: Arc<ExecutionRegistry>,
    pub ledger: Arc<Ledger>,
    pub interruptions: Arc<Interruptions>,
    pub timer: Timer,
    pub tasks: Tasks,
    pub limits: ActorLimits,
}

/// The operator's settings for each sandbox.
pub struct ActorLimits {
    pub concurrent_executions: u32,
    pub detached_executions: u32,
    pub execution_queue: u32,
    pub paused_retention_ms: u64,
    pub hibernate_after_ms: u64,
    pub prices: Prices,
}

/// The state of a sandbox at the start of its actor.
pub struct ActorInit {
    pub record: SandboxRecord,
    /// The link to the running agent, if it is open.
    pub agent: Option<Agent>,
    pub reservation: Reservation,
    pub slot: SlotLease,
    /// The recovery of the sandbox, which ends when the agent is connected.
    pub recovery: Option<WorkInProgress>,
}

/// The state of the sandbox's processes.
enum ProcessState {
    /// Without an agent the link is broken; the next request opens another one.
    Running(Option<Agent>),
    Frozen(Option<Agent>),
    /// They are stored on the disk.
    Hibernated,
    /// The sandbox has no processes.
    Stopped,
}

struct Actor {
    context: Arc<ActorContext>,
    record: Arc<SandboxRecord>,
    spec: SandboxSpec,
    processes: ProcessState,
    reservation: Reservation,
    /// Released when the sandbox is removed completely.
    slot: Option<SlotLease>,
    workload: Workload,
    executions: Arc<SandboxExecutions>,
    timeouts: Timeouts,
    /// The pause in which its memory was moved to swap space.
    paged_out: Option<TimeMs>,
    last_link_loss: Option<Instant>,
    process_loss: Option<ProcessLoss>,
    policy: PolicyEnforcement,
    /// Of the disk that a rollback has prepared.
    prepared: Option<RetainedBytes>,
    status: watch::Sender<Status>,
}

/// Starts and registers the actor of a sandbox whose record is committed.
pub fn spawn(context: &Arc<ActorContext>, init: ActorInit) -> Status {
    let ActorInit { record, agent, reservation, slot, recovery } = init;
    let (requests, mailbox) = mpsc::channel(MAILBOX);
    let (released, released_permits) = mpsc::unbounded_channel();
    let status = Status::new(record);
    let (publisher, watcher) = watch::channel(status.clone());
    let record = Arc::clone(&status.record);
    let processes = match record.lifecycle.process_state() {
        rules::ProcessState::Running => ProcessState::Running(agent),
        rules::ProcessState::Frozen => ProcessState::Frozen(agent),
        rules::ProcessState::Stored => ProcessState::Hibernated,
        rules::ProcessState::Ended => ProcessState::Stopped,
    };
    let actor = Actor {
        spec: spec_of(&record),
        processes,
        workload: Workload::new(&context.limits, Arc::clone(&context.counters), released),
        executions: context.detached.of(&record.id),
        timeouts: Timeouts::new(context.timer.clone(), record.id.clone(), context.stamped_store.now()),
        status: publisher,
        context: Arc::clone(context),
        record,
        reservation,
        slot: Some(slot),
        paged_out: None,
        last_link_loss: None,
        process_loss: None,
        policy: PolicyEnforcement::default(),
        prepared: None,
    };
    context.registry.insert(status.record.id.clone(), ActorHandle { requests, status: watcher });
    context.tasks.spawn(actor.run(mailbox, released_permits, recovery));
    status
}

/// The driver's parameters of a recorded sandbox.
fn spec_of(record: &SandboxRecord) -> SandboxSpec {
    let resources = record.config.resources;
    SandboxSpec {
        id: record.id.clone(),
        slot: record.slot,
        layers: record.layers.iter().map(Into::into).collect(),
        disk_from: None,
        processes_from: None,
        limits: Limits { cpu: resources.cpu, memory_mb: resources.memory_mb },
        disk_mb: resources.disk_mb,
        isolation: record.config.isolation,
    }
}

impl Actor {
    async fn run(
        mut self,
        mut mailbox: mpsc::Receiver<ActorRequest>,
        mut released_permits: mpsc::UnboundedReceiver<WorkKind>,
        recovery: Option<WorkInProgress>,
    ) {
        let timeout_reached = self.timeouts.reached();
        let stopping = self.context.tasks.stopping().clone();
        if matches!(self.processes, ProcessState::Running(None)) {
            // A recovered sandbox is connected by its own actor, so that an agent that does not answer delays no other.
            self.link_lost().await;
        }
        if let Some(recovery) = recovery {
            recovery.end().await;
        }
        let (status, workload) = (&self.status, &mut self.workload);
        self.executions.adopt_recovered(status, |kind| workload.adopt(kind));
        self.arm_timeout();
        loop {
            self.publish_agent();
            let mut link_end = self.link_end();
            let flow = tokio::select! {
                // In this order: returned permits make room for requests, and requests do not delay a timeout.
                biased;
                Some(work) = released_permits.recv() => {
                    self.release(work).await;
                    ControlFlow::Continue(())
                }
                () = link_ended(&mut link_end) => {
                    self.link_lost().await;
                    ControlFlow::Continue(())
                }
                () = timeout_reached.notified() => self.run_due_timeout().await,
                request = mailbox.recv() => match request {
                    Some(request) => self.serve(request).await,
                    None => break,
                },
                () = tokio::time::sleep(network_policy::RETRY), if self.policy.is_pending() => {
                    self.restore_policy().await;
                    ControlFlow::Continue(())
                }
                // The engine stops. The sandbox keeps running.
                () = stopping.cancelled() => break,
            };
            if flow.is_break() {
                break;
            }
            self.arm_timeout();
        }
        // Detached executions drop their clones of the link.
        let is_terminated = self.record.state() == SandboxState::Terminated;
        self.executions.set_agent(if is_terminated {
            AgentAvailability::SandboxTerminated
        } else {
            AgentAvailability::Waiting
        });
        self.timeouts.clear();
    }

    fn id(&self) -> &SandboxId {
        &self.record.id
    }

    /// Begins work that may have ended earlier daemons.
    async fn begin_work(&self, kind: rules::RepeatableWork) -> Result<WorkInProgress, EngineError> {
        let affected = Affected { account: &self.record.account, sandbox: self.id() };
        self.context.interruptions.begin(kind, self.id().as_str(), Some(affected)).await
    }

    /// Carries out a request. A caller that stopped waiting does not get the reply; the effect is published all the same.
    async fn serve(&mut self, request: ActorRequest) -> ControlFlow<()> {
        self.timeouts.touch(self.context.stamped_store.now());
        match request {
            ActorRequest::Touch => {}
            ActorRequest::Enter { operation, reply } => {
                let is_command = matches!(operation, Operation::Execute { .. });
                let work = if is_command { WorkKind::Command } else { WorkKind::Traffic };
                self.admit(work, operation, reply).await;
            }
            ActorRequest::Detach { auto_resume, is_terminal, reply } => {
                let work = WorkKind::of_detached(is_terminal);
                self.admit(work, Operation::Execute { auto_resume }, reply).await;
            }
            ActorRequest::Pause { reason, processes, reply } => {
                let result = match processes {
                    Processes::Kept => self.pause(reason).await,
                    Processes::Stored => self.hibernate(reason, QuotaCheck::Enforced).await,
                    Processes::Ended => self.stop(reason).await,
                };
                let _ = reply.send(result);
            }
            ActorRequest::FreeMemory { reply } => {
                let _ = reply.send(self.free_memory(MEMORY_PRESSURE).await);
            }
            ActorRequest::Resume { processes, reply } => {
                let result = match processes {
                    Processes::Kept | Processes::Stored => self.resume().await,
                    Processes::Ended => self.restart(stop::DISCARDED).await,
                };
                if let Err(error) = &result {
                    error.count_refusal(&self.context.counters);
                }
                let _ = reply.send(result);
            }
            ActorRequest::Network { change, reply } => {
                let result = self.change_network(change).await;
                let _ = reply.send(result);
            }
            ActorRequest::Timeout { change, reply } => {
                let result = self.change_timeout(change).await;
                let _ = reply.send(result);
            }
            ActorRequest::Expose { request, run, reply } => {
                let result = self.expose_port(request, run).await;
                let _ = reply.send(result);
            }
            ActorRequest::ClosePort { port, run, reply } => {
                let result = self.close_port(port, run).await;
                let _ = reply.send(result);
            }
            ActorRequest::Capture { copy, snapshot, scope, reply } => {
                let result = self.capture(copy, &snapshot, scope).await;
                let _ = reply.send(result);
            }
            ActorRequest::Rollback { snapshot, hold, reply } => {
                let result = self.rollback(&snapshot).await;
                drop(hold);
                let _ = reply.send(result);
            }
            ActorRequest::Terminate { reason, reply } => {
                let result = self.terminate(&reason).await;
                let is_terminated = result.is_ok();
                let _ = reply.send(result);
                if is_terminated {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    async fn change_network(&mut self, change: NetworkChange) -> Result<Status, EngineError> {
        decide(self.record.state(), Operation::Network)?;
        let before = &self.record.config.network;
        let policy = change.of(before);
        if policy == *before {
            return Ok(self.status.borrow().clone());
        }
        let is_other_egress = policy.egress != before.egress;
        if is_other_egress && self.has_network() {
            self.policy.replace(&self.context.host, &self.record, &policy.egress).await?;
        }
        let now = self.context.stamped_store.now();
        let (next, events) = network_policy::changed(&self.record, policy, now);
        if let Err(error) = self.commit_events(next, events, now).await {
            if is_other_egress {
                self.restore_policy().await;
            }
            return Err(error.into());
        }
        if is_other_egress {
            self.policy.settle();
        }
        Ok(self.status.borrow().clone())
    }

    async fn change_timeout(&mut self, change: TimeoutChange) -> Result<Status, EngineError> {
        decide(self.record.state(), Operation::Timeout)?;
        let now = self.context.stamped_store.now();
        if let Some((next, event)) = timeouts::changed(&self.record, change, now) {
            self.commit_events(next, vec![event], now).await?;
        }
        Ok(self.status.borrow().clone())
    }

    async fn restore_policy(&mut self) {
        if self.has_network() {
            self.policy.restore(&self.context.host, &self.record).await;
        } else {
            self.policy.settle();
        }
    }

    /// Whether the sandbox is connected to the network: it has processes.
    fn has_network(&self) -> bool {
        !matches!(self.processes, ProcessState::Stopped | ProcessState::Hibernated)
    }

    async fn expose_port(
        &mut self,
        request: ExposeRequest,
        run: Option<RunId>,
    ) -> Result<ExposedPort, EngineError> {
        decide(self.record.state(), Operation::Network)?;
        let now = self.context.stamped_store.now();
        let (next, exposed, event) = ports::expose(&self.record, request, run, now)?;
        self.commit_events(next, vec![event], now).await?;
        Ok(exposed)
    }

    async fn close_port(&mut self, port: u16, run: Option<RunId>) -> Result<TimeMs, EngineError> {
        decide(self.record.state(), Operation::Network)?;
        let now = self.context.stamped_store.now();
        let (next, event) = ports::close(&self.record, port, run, now)?;
        self.commit_events(next, vec![event], now).await?;
        Ok(now)
    }

    /// What the deadlines depend on, and the time.
    fn watch<'a>(&self, record: &'a SandboxRecord) -> (Watch<'a>, TimeMs) {
        let retention_ms = self.context.limits.paused_retention_ms;
        let hibernate_after_ms = self.context.limits.hibernate_after_ms;
        let may_free = hibernate_after_ms > 0 && self.can_free_memory();
        let hibernate_after_ms = may_free.then_some(hibernate_after_ms);
        let watch = self.timeouts.watch(record, &self.workload, retention_ms, hibernate_after_ms);
        (watch, self.context.stamped_store.now())
    }

    fn arm_timeout(&mut self) {
        let record = Arc::clone(&self.record);
        let (watch, now) = self.watch(&record);
        self.timeouts.arm(&watch, now);
    }

    /// Commits and publishes the next record, with an event about the change and one about the cost of running time.
    async fn commit(
        &mut self,
        next: SandboxRecord,
        kind: EventKind,
        data: Value,
        at: TimeMs,
    ) -> Result<(), StoreError> {
        let event = events::of_sandbox(&next, at, kind, data);
        self.commit_events(next, vec![event], at).await
    }

    async fn commit_events(
        &mut self,
        mut next: SandboxRecord,
        events: Vec<NewEvent>,
        at: TimeMs,
    ) -> Result<(), StoreError> {
        next.revision = self.record.revision + 1;
        let batch = events::batch_with_cost(&self.context.limits.prices, &self.record, &next, at);
        self.context.stamped_store.commit(events.into_iter().fold(batch, Batch::event)).await?;
        let status = Status { process_loss: self.process_loss, ..Status::new(next) };
        let before = std::mem::replace(&mut self.record, Arc::clone(&status.record));
        self.status.send_replace(status);
        if before.lifecycle.hibernated_at() != self.record.lifecycle.hibernated_at() {
            self.context.snapshots.request_sync();
        }
        Ok(())
    }

    /// Publishes the link to the agent to the detached executions.
    fn publish_agent(&self) {
        self.executions.set_agent(match &self.processes {
            ProcessState::Running(Some(agent)) => AgentAvailability::Linked(agent.clone()),
            // A frozen agent does not answer.
            ProcessState::Running(None) | ProcessState::Frozen(_) | ProcessState::Hibernated => {
                AgentAvailability::Waiting
            }
            ProcessState::Stopped => AgentAvailability::ProcessesGone,
        });
    }

    fn link_end(&self) -> Option<watch::Receiver<bool>> {
        match &self.processes {
            ProcessState::Running(Some(agent)) | ProcessState::Frozen(Some(agent)) => Some(agent.ended()),
            ProcessState::Running(None)
            | ProcessState::Frozen(None)
            | ProcessState::Hibernated
            | ProcessState::Stopped => None,
        }
    }
}

async fn link_ended(link: &mut Option<watch::Receiver<bool>>) {
    match link {
        // A dropped sender means the same.
        Some(ended) => drop(ended.wait_for(|ended| *ended).await),
        None => std::future::pending().await,
    }
}
