//! The actor of a sandbox: the one task that changes it.
//!
//! ```text
//!               pause / idle                         processes ended
//!   Running ----------------> Frozen      Running, Frozen ----------------> Ended
//!      ^ <------------------------+                                           |
//!      |         resume                                                       |
//!      +----------------------------------------------------------------------+
//!                      resume: started again on its disk
//!   Running, Frozen -- hibernate --> Stored -- resume: continued --> Running
//!   Running -- pause without processes --> Ended
//!   Frozen, Stored -- cold resume: started again on its disk --> Running
//!   any ---- terminate, end of the lifetime or the retention ----> the actor ends
//! ```
//!
//! These are the states of its processes (`processes`); the record has the lifecycle, in which they are running or `paused`. Each
//! operation acts on the host, commits the record with the next lifecycle, publishes it and replies, in this order. If the commit fails,
//! the effect on the host is undone and the caller gets the error. A termination commits first: after a crash the recovery finds no
//! record and removes the sandbox.
//!
//! This file has the actor's state and its loop. Each verb is a function over the actor, in a file of its own: `admit` lets callers work
//! inside; `pause`, `stop`, `hibernate`, `resume` and `terminate` change the state; `capture` and `rollback` copy and replace the disk;
//! `network_policy`, `ports` and `timeouts` change the settings; `due` runs what happens by itself, and `loss` what happens unexpectedly.
//! They share `end`, `wake`, `stored_processes` and `prepared_disk`.

mod admit;
mod capture;
mod due;
mod end;
mod hibernate;
mod loss;
mod network_policy;
mod pause;
mod ports;
mod prepared_disk;
mod processes;
mod resume;
mod rollback;
mod stop;
mod stored_processes;
mod terminate;
mod timeouts;
pub mod timer;
mod wake;
mod workload;

pub use loss::PROCESSES_LOST;
pub use pause::{DISK_PRESSURE, ON_REQUEST};

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId, SandboxState};
use driver::{Limits, SandboxSpec};
use rules::{Lifecycle, Operation, Prices, RepeatableWork, TimeMs};
use serde_json::Value;
use store::{Batch, NewEvent, SandboxRecord, StoreError};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use self::admit::{admit, release};
use self::capture::capture;
use self::due::{arm_timeout, run_due_timeout};
use self::hibernate::{MEMORY_PRESSURE, free_memory, hibernate};
use self::loss::link_lost;
use self::network_policy::{PolicyEnforcement, change_network, restore_policy};
use self::pause::pause;
use self::ports::{close_port, expose_port};
use self::processes::LinkedProcesses;
use self::resume::{DISCARDED, resume, resume_cold};
use self::rollback::rollback;
use self::stop::stop;
use self::terminate::terminate;
use self::timeouts::{Timeouts, change_timeout};
use self::workload::Workload;
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
use crate::registry::mailbox::{ActorHandle, ActorRequest, MAILBOX, Processes, WorkKind};
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

/// A sandbox. The verbs change it.
struct Actor {
    context: Arc<ActorContext>,
    record: Arc<SandboxRecord>,
    spec: SandboxSpec,
    processes: LinkedProcesses,
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
    let actor = Actor {
        spec: spec_of(&record),
        processes: LinkedProcesses::of(&record.lifecycle, agent),
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
        if matches!(self.processes, LinkedProcesses::Running(None)) {
            // A recovered sandbox is connected by its own actor, so that an agent that does not answer delays no other.
            link_lost(&mut self).await;
        }
        if let Some(recovery) = recovery {
            recovery.end().await;
        }
        let (status, workload) = (&self.status, &mut self.workload);
        self.executions.adopt_recovered(status, |kind| workload.adopt(kind));
        arm_timeout(&mut self);
        loop {
            self.publish_agent();
            let mut link_end = self.processes.link().map(Agent::ended);
            let flow = tokio::select! {
                // In this order: returned permits make room for requests, and requests do not delay a timeout.
                biased;
                Some(work) = released_permits.recv() => {
                    release(&mut self, work).await;
                    ControlFlow::Continue(())
                }
                () = link_ended(&mut link_end) => {
                    link_lost(&mut self).await;
                    ControlFlow::Continue(())
                }
                () = timeout_reached.notified() => run_due_timeout(&mut self).await,
                request = mailbox.recv() => match request {
                    Some(request) => self.serve(request).await,
                    None => break,
                },
                () = tokio::time::sleep(network_policy::RETRY), if self.policy.is_pending() => {
                    restore_policy(&mut self).await;
                    ControlFlow::Continue(())
                }
                // The engine stops. The sandbox keeps running.
                () = stopping.cancelled() => break,
            };
            if flow.is_break() {
                break;
            }
            arm_timeout(&mut self);
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
    async fn begin_work(&self, kind: RepeatableWork) -> Result<WorkInProgress, EngineError> {
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
                admit(self, work, operation, reply).await;
            }
            ActorRequest::Detach { auto_resume, is_terminal, reply } => {
                let work = WorkKind::of_detached(is_terminal);
                admit(self, work, Operation::Execute { auto_resume }, reply).await;
            }
            ActorRequest::Pause { reason, processes, reply } => {
                let result = match processes {
                    Processes::Kept => pause(self, reason).await,
                    Processes::Stored => hibernate(self, reason, QuotaCheck::Enforced).await,
                    Processes::Ended => stop(self, reason).await,
                };
                let _ = reply.send(result);
            }
            ActorRequest::FreeMemory { reply } => {
                let _ = reply.send(free_memory(self, MEMORY_PRESSURE).await);
            }
            ActorRequest::Resume { processes, reply } => {
                let result = match processes {
                    Processes::Kept | Processes::Stored => resume(self).await,
                    Processes::Ended => resume_cold(self, DISCARDED).await,
                };
                if let Err(error) = &result {
                    error.count_refusal(&self.context.counters);
                }
                let _ = reply.send(result);
            }
            ActorRequest::Network { change, reply } => {
                let _ = reply.send(change_network(self, change).await);
            }
            ActorRequest::Timeout { change, reply } => {
                let _ = reply.send(change_timeout(self, change).await);
            }
            ActorRequest::Expose { request, run, reply } => {
                let _ = reply.send(expose_port(self, request, run).await);
            }
            ActorRequest::ClosePort { port, run, reply } => {
                let _ = reply.send(close_port(self, port, run).await);
            }
            ActorRequest::Capture { copy, snapshot, scope, reply } => {
                let _ = reply.send(capture(self, copy, &snapshot, scope).await);
            }
            ActorRequest::Rollback { snapshot, hold, reply } => {
                let result = rollback(self, &snapshot).await;
                drop(hold);
                let _ = reply.send(result);
            }
            ActorRequest::Terminate { reason, reply } => {
                let result = terminate(self, &reason).await;
                let is_terminated = result.is_ok();
                let _ = reply.send(result);
                if is_terminated {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Opens a link to the agent. Detached executions continue.
    async fn connect(&self, timeout: Duration) -> Result<Agent, EngineError> {
        self.context.host.connect(self.id(), &self.executions.running_ops(), timeout).await
    }

    /// The record with another lifecycle, to be committed.
    fn next_record(&self, lifecycle: Lifecycle) -> SandboxRecord {
        SandboxRecord { lifecycle, ..(*self.record).clone() }
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
            LinkedProcesses::Running(Some(agent)) => AgentAvailability::Linked(agent.clone()),
            // A frozen agent does not answer.
            LinkedProcesses::Running(None) | LinkedProcesses::Frozen(_) | LinkedProcesses::Stored => {
                AgentAvailability::Waiting
            }
            LinkedProcesses::Ended => AgentAvailability::ProcessesGone,
        });
    }
}

async fn link_ended(link: &mut Option<watch::Receiver<bool>>) {
    match link {
        // A dropped sender means the same.
        Some(ended) => drop(ended.wait_for(|ended| *ended).await),
        None => std::future::pending().await,
    }
}
