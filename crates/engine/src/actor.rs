//! The one task that changes a sandbox.
//!
//! ```text
//!               pause / idle                         link lost and nobody inside
//!   Running ----------------> Frozen      Running, Frozen ----------------> Stopped
//!      ^ <------------------------+                                            |
//!      |         resume                                                        |
//!      +-----------------------------------------------------------------------+
//!                      resume: started again on its disk
//!   any ---- terminate, lifetime over, kept too long ----> the task ends
//! ```
//!
//! To the outside `Frozen` and `Stopped` are both `paused`. Each verb acts on the host, commits, publishes and answers, in
//! that order; where the commit fails, what was done on the host is undone and the caller hears of the failure. A
//! termination commits first: a daemon that dies then finds no record, and removes what is left.

mod admission;
mod lifecycle;
mod network_policy;
mod ports;

pub use lifecycle::PROCESSES_LOST;

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId, SandboxState};
use driver::{Limits, SandboxSpec};
use rules::{Activity, Due, Operation, Prices, Slots, TimeMs, Watch, next_deadline};
use store::{Batch, NewEvent, SandboxRecord, StoreError};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use crate::detached::registry::{AgentAvailability, SandboxExecutions};
use crate::events;
use crate::ledger::{Reservation, SlotLease};
use crate::link::Agent;
use crate::mailbox::{ActorHandle, ActorRequest, MAILBOX, WorkKind};
use crate::shared::Shared;
use crate::status::Status;

/// LinkLoss a verb that the actor wanted by itself failed, it tries again so much later.
const RETRY: Duration = Duration::from_secs(5);
/// The timer takes no more than two years; a ring too early does no harm.
const LONGEST_WAIT: Duration = Duration::from_secs(300 * 24 * 3600);

/// What a sandbox is when its actor begins.
pub struct ActorInit {
    pub record: SandboxRecord,
    /// Where its processes run and are reached.
    pub agent: Option<Agent>,
    pub reservation: Reservation,
    pub slot: SlotLease,
}

/// What there is of the sandbox's processes.
enum ProcessState {
    /// They run. No agent: the link broke and is opened again when it is needed.
    Running(Option<Agent>),
    Frozen(Option<Agent>),
    /// There are none.
    Stopped,
}

struct Actor {
    shared: Arc<Shared>,
    record: Arc<SandboxRecord>,
    spec: SandboxSpec,
    phase: ProcessState,
    reservation: Reservation,
    /// Given up with the last trace of the sandbox.
    slot: Option<SlotLease>,
    slots: Slots,
    /// Callers that wait for a place, longest first.
    queue: VecDeque<admission::QueuedWork>,
    traffic: u32,
    /// Of the places that are taken, those of terminals.
    terminals: u32,
    executions: Arc<SandboxExecutions>,
    quiet_since: TimeMs,
    /// When the timer rings, if it is set.
    armed: Option<TimeMs>,
    /// What is due waits until then, after it could not be done.
    not_before: TimeMs,
    last_link_loss: Option<Instant>,
    /// The network may be under another policy than the recorded one: that could not be put back in force.
    policy_pending: bool,
    deadline_reached: Arc<Notify>,
    status: watch::Sender<Status>,
    released: mpsc::UnboundedSender<WorkKind>,
}

/// An event in a sandbox's name.
pub fn event(record: &SandboxRecord, kind: &str, data: serde_json::Value) -> NewEvent {
    let at = record.terminated_at.or(record.paused_at).or(record.started_at).unwrap_or(record.created_at);
    NewEvent {
        sandbox: record.id.clone(),
        account: record.account.clone(),
        run: String::new(),
        at,
        kind: kind.to_owned(),
        data,
        once: None,
    }
}

/// A batch of the next record, with an event of what the running time cost that ends with it. That one comes before the
/// event of the change, which may be the sandbox's last.
pub fn with_cost(prices: &Prices, before: &SandboxRecord, next: &SandboxRecord, at: TimeMs) -> Batch {
    let batch = Batch::new().put(next.clone());
    match events::cost(prices, before, next) {
        Some(data) => batch.event(NewEvent { at, ..event(next, EventKind::CostRuntime.as_str(), data) }),
        None => batch,
    }
}

/// Starts the actor of a sandbox whose record is committed, and registers it.
pub fn spawn(shared: &Arc<Shared>, birth: ActorInit) -> Status {
    let ActorInit { record, agent, reservation, slot } = birth;
    let (requests, mailbox) = mpsc::channel(MAILBOX);
    let (released, released_permits) = mpsc::unbounded_channel();
    let status = Status::new(record);
    let (publisher, watcher) = watch::channel(status.clone());
    let record = Arc::clone(&status.record);
    let actor = Actor {
        spec: spec_of(&record),
        phase: match (record.state, reservation.hold()) {
            (SandboxState::Running | SandboxState::Creating, _) => ProcessState::Running(agent),
            (_, rules::Hold::Stopped) => ProcessState::Stopped,
            (_, _) => ProcessState::Frozen(agent),
        },
        slots: Slots::new(shared.settings.concurrent_executions, shared.settings.execution_queue),
        queue: VecDeque::new(),
        traffic: 0,
        terminals: 0,
        executions: shared.detached.of(&record.id),
        quiet_since: shared.clock.now(),
        armed: None,
        not_before: TimeMs(0),
        deadline_reached: Arc::new(Notify::new()),
        status: publisher,
        shared: Arc::clone(shared),
        record,
        reservation,
        slot: Some(slot),
        last_link_loss: None,
        policy_pending: false,
        released,
    };
    shared.register(status.record.id.clone(), ActorHandle { requests, status: watcher });
    shared.tasks.spawn(actor.run(mailbox, released_permits));
    status
}

/// What the driver needs to start the sandbox again.
pub fn spec_of(record: &SandboxRecord) -> SandboxSpec {
    let resources = record.config.resources;
    SandboxSpec {
        id: record.id.clone(),
        slot: record.slot,
        layers: record.layers.iter().map(Into::into).collect(),
        limits: Limits { cpu: resources.cpu, memory_mb: resources.memory_mb },
        disk_mb: resources.disk_mb,
    }
}

impl Actor {
    async fn run(
        mut self,
        mut mailbox: mpsc::Receiver<ActorRequest>,
        mut released_permits: mpsc::UnboundedReceiver<WorkKind>,
    ) {
        let deadline_reached = Arc::clone(&self.deadline_reached);
        let stopping = self.shared.stopping.clone();
        if matches!(self.phase, ProcessState::Running(None)) {
            // Recovered: reached by its own actor, so that one that does not answer keeps nobody else waiting.
            self.link_lost().await;
        }
        self.adopt_detached_executions();
        self.arm_timer();
        loop {
            self.publish_agent_availability();
            let mut link = self.link_end();
            let life = tokio::select! {
                // Whoever released_permits makes room for whoever asks.
                biased;
                Some(work) = released_permits.recv() => {
                    self.release(work).await;
                    ControlFlow::Continue(())
                }
                () = link_ended(&mut link) => {
                    self.link_lost().await;
                    ControlFlow::Continue(())
                }
                // What is due is not put off by requests, however many.
                () = deadline_reached.notified() => self.run_due_deadline().await,
                request = mailbox.recv() => match request {
                    Some(request) => self.serve(request).await,
                    None => break,
                },
                () = tokio::time::sleep(network_policy::RETRY), if self.policy_pending => {
                    self.reapply_policy().await;
                    ControlFlow::Continue(())
                }
                // The engine stops, and the sandbox lives on.
                () = stopping.cancelled() => break,
            };
            if life == ControlFlow::Break(()) {
                break;
            }
            self.arm_timer();
        }
        // The link ends with the last who holds it.
        let is_over = self.record.state == SandboxState::Terminated;
        self.executions.agent.send_replace(if is_over {
            AgentAvailability::Terminated
        } else {
            AgentAvailability::Waiting
        });
        self.shared.timer.clear(self.record.id.clone());
    }

    fn id(&self) -> &SandboxId {
        &self.record.id
    }

    async fn serve(&mut self, request: ActorRequest) -> ControlFlow<()> {
        self.touch();
        match request {
            ActorRequest::Touch => {}
            ActorRequest::Enter { operation, reply } => self.enter(operation, reply).await,
            ActorRequest::Detach { auto_resume, is_terminal, reply } => {
                let work = if is_terminal { WorkKind::Terminal } else { WorkKind::Command };
                self.admit(work, Operation::Execute { auto_resume }, reply).await;
            }
            ActorRequest::Pause { reply } => {
                let result = self.pause("request").await;
                // Nobody may be waiting any more; the state is published all the same.
                let _ = reply.send(result);
            }
            ActorRequest::Resume { reply } => {
                let result = self.resume().await;
                if let Err(error) = &result {
                    self.shared.counters.refusal(error);
                }
                let _ = reply.send(result);
            }
            ActorRequest::Network { change, reply } => {
                let result = self.change_network(change).await;
                let _ = reply.send(result);
            }
            ActorRequest::Expose { order, run, reply } => {
                let result = self.expose(order, run).await;
                let _ = reply.send(result);
            }
            ActorRequest::ClosePort { port, run, reply } => {
                let result = self.close_port(port, run).await;
                let _ = reply.send(result);
            }
            ActorRequest::Terminate { reason, reply } => {
                let result = self.terminate(&reason).await;
                let over = result.is_ok();
                let _ = reply.send(result);
                if over {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Does what is due now, if anything is.
    async fn run_due_deadline(&mut self) -> ControlFlow<()> {
        self.armed = None;
        let now = self.shared.clock.now();
        let Some(deadline) = next_deadline(&self.watch()).filter(|deadline| deadline.is_due(now)) else {
            return ControlFlow::Continue(());
        };
        let result = match deadline.what {
            Due::AutoPause => self.pause(lifecycle::IDLE).await.map(|_| ControlFlow::Continue(())),
            Due::Expire(expiry) => self.terminate(expiry.reason()).await.map(|_| ControlFlow::Break(())),
        };
        result.unwrap_or_else(|error| {
            tracing::error!(id = %self.id(), %error, due = ?deadline.what, "a deadline could not be kept; trying again");
            self.not_before = now.after(crate::clock::millis(RETRY));
            ControlFlow::Continue(())
        })
    }

    fn watch(&self) -> Watch {
        let busy = self.slots.running() > self.terminals || self.slots.queued() > 0 || self.traffic > 0;
        Watch {
            state: self.record.state,
            accounting: self.record.accounting,
            activity: if busy { Activity::Busy } else { Activity::QuietSince(self.quiet_since) },
            timeout_ms: self.record.config.timeout_ms,
            idle_timeout_ms: self.record.config.idle_timeout_ms,
            paused_retention_ms: self.shared.settings.paused_retention_ms,
        }
    }

    /// Sets the timer if it would ring too late. One that rings too early costs less than setting it at every command.
    fn arm_timer(&mut self) {
        let Some(deadline) = next_deadline(&self.watch()) else { return };
        let at = deadline.at.max(self.not_before);
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        let wait = Duration::from_millis(at.since(self.shared.clock.now())).min(LONGEST_WAIT);
        self.shared.timer.set(self.id().clone(), wait, Arc::clone(&self.deadline_reached));
        self.armed = Some(at);
    }

    fn touch(&mut self) {
        self.quiet_since = self.shared.clock.now();
    }

    /// Commits the next record with an event about it and one about what it cost, and publishes it.
    async fn commit(
        &mut self,
        next: SandboxRecord,
        kind: &str,
        data: serde_json::Value,
        at: TimeMs,
    ) -> Result<(), StoreError> {
        let event = NewEvent { at, ..event(&next, kind, data) };
        self.commit_events(next, vec![event], at).await
    }

    /// The same with any events.
    async fn commit_events(
        &mut self,
        mut next: SandboxRecord,
        events: Vec<NewEvent>,
        at: TimeMs,
    ) -> Result<(), StoreError> {
        next.revision = self.record.revision + 1;
        let batch = with_cost(&self.shared.settings.prices, &self.record, &next, at);
        self.shared.store.commit(events.into_iter().fold(batch, Batch::event)).await?;
        let status = Status::new(next);
        self.record = Arc::clone(&status.record);
        self.status.send_replace(status);
        Ok(())
    }

    fn link_end(&self) -> Option<watch::Receiver<bool>> {
        match &self.phase {
            ProcessState::Running(Some(agent)) | ProcessState::Frozen(Some(agent)) => Some(agent.ended()),
            ProcessState::Running(None) | ProcessState::Frozen(None) | ProcessState::Stopped => None,
        }
    }
}

async fn link_ended(link: &mut Option<watch::Receiver<bool>>) {
    match link {
        // The sender going away is an end too.
        Some(ended) => drop(ended.wait_for(|ended| *ended).await),
        None => std::future::pending().await,
    }
}
