//! Admission: lets callers work inside a sandbox, queues them, or refuses them.

use std::collections::VecDeque;
use std::sync::Arc;

use api::SandboxState;
use rules::{Activity, LifecycleStep, Next, Operation, Slot, SlotKind, Slots, TimeMs, decide};
use tokio::sync::mpsc;

use super::{Actor, ActorLimits, ProcessState};
use crate::counters::{Counters, GaugeGuard};
use crate::error::EngineError;
use crate::host::RECONNECT_TIMEOUT;
use crate::link::Agent;
use crate::registry::mailbox::{Admission, Permit, Reply, WorkKind};

/// The work in progress inside a sandbox, and the commands that wait for an execution slot.
pub(super) struct Workload {
    attached: Lane,
    /// Detached commands and terminals.
    detached: Lane,
    /// Admitted work without an execution slot: file operations, port connections, attachments.
    traffic: u32,
    /// Slots of terminals. A terminal alone does not keep the sandbox active.
    terminals: u32,
    /// Receives the kind of work of each dropped permit.
    released: mpsc::UnboundedSender<WorkKind>,
    counters: Arc<Counters>,
}

/// Slots of one kind, and the commands that wait for one of them.
struct Lane {
    slots: Slots,
    /// Longest waiting first.
    queue: VecDeque<QueuedWork>,
}

/// A command that waits for an execution slot.
struct QueuedWork {
    work: WorkKind,
    operation: Operation,
    reply: Reply<Admission>,
    _counted: GaugeGuard,
}

impl Lane {
    fn new(kind: SlotKind, limit: u32, queue_limit: u32) -> Self {
        Self { slots: Slots::new(kind, limit, queue_limit), queue: VecDeque::new() }
    }

    /// Fails if neither a slot nor a place in the queue is free.
    fn check_room(&mut self) -> Result<(), EngineError> {
        self.drop_abandoned();
        Ok(self.slots.check()?)
    }

    fn claim(&mut self) -> Result<Slot, EngineError> {
        self.drop_abandoned();
        Ok(self.slots.acquire()?)
    }

    /// Removes queued commands whose callers timed out or went away.
    fn drop_abandoned(&mut self) {
        let slots = &mut self.slots;
        self.queue.retain(|queued| {
            if queued.reply.is_closed() {
                slots.cancel();
            }
            !queued.reply.is_closed()
        });
    }

    /// Gives a free slot to the next queued command; `None` if no command waits. The caller of the command may be gone.
    fn next_queued(&mut self) -> Option<QueuedWork> {
        (self.slots.release() == Next::RunQueued).then(|| self.queue.pop_front()).flatten()
    }
}

impl Workload {
    pub fn new(
        limits: &ActorLimits,
        counters: Arc<Counters>,
        released: mpsc::UnboundedSender<WorkKind>,
    ) -> Self {
        let ActorLimits { concurrent_executions, detached_executions, execution_queue, .. } = *limits;
        Self {
            attached: Lane::new(SlotKind::Attached, concurrent_executions, execution_queue),
            detached: Lane::new(SlotKind::Detached, detached_executions, execution_queue),
            traffic: 0,
            terminals: 0,
            released,
            counters,
        }
    }

    /// The activity of the sandbox, whose last work began or ended at `last_activity`.
    pub fn activity(&self, last_activity: TimeMs) -> Activity {
        let (attached, detached) = (&self.attached.slots, &self.detached.slots);
        let queued = attached.queued() + detached.queued();
        if attached.running() > 0 || queued > 0 || self.traffic > 0 {
            Activity::Busy
        } else if detached.running() > self.terminals {
            Activity::Detached
        } else {
            Activity::QuietSince(last_activity)
        }
    }

    /// The permit of a detached execution that an earlier daemon started.
    pub fn adopt(&mut self, work: WorkKind) -> Permit {
        if let Some(lane) = self.lane(work) {
            lane.slots.adopt();
        }
        self.permit(work)
    }

    /// The lane of work that needs a slot.
    fn lane(&mut self, work: WorkKind) -> Option<&mut Lane> {
        match work {
            WorkKind::Command => Some(&mut self.attached),
            WorkKind::Detached | WorkKind::Terminal => Some(&mut self.detached),
            WorkKind::Traffic => None,
        }
    }

    /// Fails if the work needs a slot, and neither a slot nor a place in the queue is free.
    fn check_room(&mut self, work: WorkKind) -> Result<(), EngineError> {
        self.lane(work).map_or(Ok(()), Lane::check_room)
    }

    fn claim(&mut self, work: WorkKind) -> Result<Slot, EngineError> {
        match self.lane(work) {
            Some(lane) => lane.claim(),
            None => {
                self.traffic += 1;
                Ok(Slot::Run)
            }
        }
    }

    /// Lets a command wait for a slot.
    fn enqueue(&mut self, queued: QueuedWork) {
        // Only work with a lane is told to wait. Without one, its caller would learn that its request is lost.
        if let Some(lane) = self.lane(queued.work) {
            lane.queue.push_back(queued);
        }
    }

    fn permit(&mut self, work: WorkKind) -> Permit {
        let counted = work.needs_slot().then(|| self.counters.executions_running.enter());
        self.terminals += u32::from(work == WorkKind::Terminal);
        Permit::new(work, self.released.clone(), counted)
    }

    /// Takes back a permit.
    fn release(&mut self, work: WorkKind) {
        match work {
            WorkKind::Traffic => self.traffic = self.traffic.saturating_sub(1),
            WorkKind::Terminal => self.terminals = self.terminals.saturating_sub(1),
            WorkKind::Command | WorkKind::Detached => {}
        }
    }

    /// Gives the slot of released work to the next queued command of its lane.
    fn next_queued(&mut self, released: WorkKind) -> Option<QueuedWork> {
        self.lane(released)?.next_queued()
    }
}

impl Actor {
    /// Admits a caller, refuses it, or queues it if the operator allows a queue. Resumes the sandbox if the operation needs it.
    pub(super) async fn admit(&mut self, work: WorkKind, operation: Operation, reply: Reply<Admission>) {
        let may_resume = self.record.config.auto_resume;
        let operation = if may_resume { operation } else { operation.without_auto_resume() };
        let answer = match self.try_admit(work, operation).await {
            Ok(Some(admission)) => Ok(admission),
            Ok(None) => {
                let _counted = self.context.counters.executions_waiting.enter();
                self.workload.enqueue(QueuedWork { work, operation, reply, _counted });
                return;
            }
            Err(error) => {
                error.count_refusal(&self.context.counters);
                Err(error)
            }
        };
        // If the caller is gone, the permit is dropped here and returns to the actor.
        let _ = reply.send(answer);
    }

    /// `None` if the command has to wait for an execution slot.
    async fn try_admit(
        &mut self,
        work: WorkKind,
        operation: Operation,
    ) -> Result<Option<Admission>, EngineError> {
        let step = decide(self.record.state(), operation);
        if matches!(step, Ok(LifecycleStep::ResumeThenRun)) {
            // A command that will be refused must not resume the sandbox.
            self.workload.check_room(work)?;
        }
        let agent = match &self.processes {
            ProcessState::Running(Some(agent))
                if !agent.is_closed()
                    && step.as_ref().is_ok_and(|step| *step != LifecycleStep::ResumeThenRun) =>
            {
                agent.clone()
            }
            // Boxed to keep the future of the common case small.
            _ => Box::pin(self.ensure_running(operation)).await?,
        };
        match self.workload.claim(work)? {
            Slot::Queue => Ok(None),
            Slot::Run => Ok(Some(self.admission(work, agent))),
        }
    }

    fn admission(&mut self, work: WorkKind, agent: Agent) -> Admission {
        if work.needs_slot() {
            self.context.counters.executions_started.add(1);
        }
        Admission {
            permit: self.workload.permit(work),
            agent,
            record: Arc::clone(&self.record),
            status: self.status.subscribe(),
        }
    }

    /// Resumes the sandbox and opens the link to its agent, as far as the operation needs it.
    async fn ensure_running(&mut self, operation: Operation) -> Result<Agent, EngineError> {
        if self.record.state() == SandboxState::Running && matches!(self.processes, ProcessState::Stopped) {
            // The loss of the processes could not be recorded before. If it cannot be recorded now, the request fails.
            self.processes_lost().await?;
        }
        self.settle_hibernation().await?;
        match self.resume_and_connect(operation).await {
            Err(error) if error.is_sandbox_failure() && self.has_lost_processes().await => {
                self.processes_lost().await?;
                self.resume_and_connect(operation).await
            }
            connected => connected,
        }
    }

    async fn resume_and_connect(&mut self, operation: Operation) -> Result<Agent, EngineError> {
        if decide(self.record.state(), operation)? == LifecycleStep::ResumeThenRun {
            self.resume().await?;
        }
        if let ProcessState::Running(Some(agent)) = &self.processes
            && !agent.is_closed()
        {
            return Ok(agent.clone());
        }
        let agent = self.connect(RECONNECT_TIMEOUT).await?;
        self.processes = ProcessState::Running(Some(agent.clone()));
        Ok(agent)
    }

    /// Takes back a permit, and gives its slot to the next queued command whose caller still waits. If the sandbox was paused in
    /// the meantime, it is resumed for the command.
    pub(super) async fn release(&mut self, work: WorkKind) {
        self.timeouts.touch(self.context.stamped_store.now());
        self.workload.release(work);
        while let Some(QueuedWork { work, operation, reply, .. }) = self.workload.next_queued(work) {
            if reply.is_closed() {
                // The sandbox is not resumed for a caller that is gone; the slot is free again.
                continue;
            }
            match self.ensure_running(operation).await {
                Ok(agent) => {
                    // If the caller is gone, the permit is dropped here and returns to the actor.
                    let _ = reply.send(Ok(self.admission(work, agent)));
                    return;
                }
                Err(error) => {
                    error.count_refusal(&self.context.counters);
                    let _ = reply.send(Err(error));
                }
            }
        }
    }
}
