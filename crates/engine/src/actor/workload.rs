//! The workload of a sandbox: execution slots, the commands that wait for one, and other admitted work.

use std::collections::VecDeque;
use std::sync::Arc;

use rules::{Activity, Next, Operation, Slot, SlotKind, Slots, TimeMs};
use tokio::sync::mpsc;

use super::ActorLimits;
use crate::counters::{Counters, GaugeGuard};
use crate::error::EngineError;
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
pub(super) struct QueuedWork {
    pub work: WorkKind,
    pub operation: Operation,
    pub reply: Reply<Admission>,
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
    pub fn check_room(&mut self, work: WorkKind) -> Result<(), EngineError> {
        self.lane(work).map_or(Ok(()), Lane::check_room)
    }

    /// A slot for the work, or a place in the queue for one.
    pub fn claim(&mut self, work: WorkKind) -> Result<Slot, EngineError> {
        match self.lane(work) {
            Some(lane) => lane.claim(),
            None => {
                self.traffic += 1;
                Ok(Slot::Run)
            }
        }
    }

    /// Lets a command wait for a slot.
    pub fn enqueue(&mut self, work: WorkKind, operation: Operation, reply: Reply<Admission>) {
        let _counted = self.counters.executions_waiting.enter();
        // Only work with a lane is told to wait. Without one, its caller would learn that its request is lost.
        if let Some(lane) = self.lane(work) {
            lane.queue.push_back(QueuedWork { work, operation, reply, _counted });
        }
    }

    /// The permit of work that has its slot.
    pub fn permit(&mut self, work: WorkKind) -> Permit {
        let counted = work.needs_slot().then(|| self.counters.executions_running.enter());
        self.terminals += u32::from(work == WorkKind::Terminal);
        Permit::new(work, self.released.clone(), counted)
    }

    /// Takes back a permit.
    pub fn release(&mut self, work: WorkKind) {
        match work {
            WorkKind::Traffic => self.traffic = self.traffic.saturating_sub(1),
            WorkKind::Terminal => self.terminals = self.terminals.saturating_sub(1),
            WorkKind::Command | WorkKind::Detached => {}
        }
    }

    /// Gives the slot of released work to the next queued command of its lane.
    pub fn next_queued(&mut self, released: WorkKind) -> Option<QueuedWork> {
        self.lane(released)?.next_queued()
    }
}
