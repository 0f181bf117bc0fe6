//! Letting callers in to work inside, and counting them.

use std::sync::Arc;

use api::SandboxState;
use driver::Presence;
use rules::{Next, Operation, Slot, Step, decide};

use super::{Actor, ProcessState};
use crate::agent_connect::{RECONNECT_TIMEOUT, connect_agent};
use crate::counters::GaugeGuard;
use crate::detached::LogWriter;
use crate::detached::registry::{AgentAvailability, RecoveredExecution};
use crate::error::EngineError;
use crate::link::Agent;
use crate::mailbox::{Admission, Permit, Reply, WorkKind};

/// Somebody who waits for a place.
pub(super) struct QueuedWork {
    work: WorkKind,
    operation: Operation,
    reply: Reply<Admission>,
    _counted: GaugeGuard,
}

impl Actor {
    /// Answers at once, or keeps a command waiting for a place if the operator allows a queue.
    pub(super) async fn enter(&mut self, operation: Operation, reply: Reply<Admission>) {
        let work = if matches!(operation, Operation::Execute { .. }) {
            WorkKind::Command
        } else {
            WorkKind::Traffic
        };
        self.admit(work, operation, reply).await;
    }

    /// The same for what the operation alone does not say.
    pub(super) async fn admit(&mut self, work: WorkKind, operation: Operation, reply: Reply<Admission>) {
        let ready = match self.check_room_before_resume(work, operation) {
            Ok(()) => self.ensure_running(operation).await,
            Err(error) => Err(error),
        };
        let admitted = match ready {
            Ok(agent) => self.take_slot(work).map(|place| (agent, place)),
            Err(error) => Err(error),
        };
        let answer = match admitted {
            Ok((_, Slot::Queue)) => {
                let _counted = self.shared.waiting.enter();
                self.queue.push_back(QueuedWork { work, operation, reply, _counted });
                return;
            }
            Ok((agent, Slot::Run)) => Ok(self.admission(work, agent)),
            Err(error) => {
                self.shared.counters.refusal(&error);
                Err(error)
            }
        };
        // A caller that went away drops its permit, which comes back as any other.
        let _ = reply.send(answer);
    }

    /// A sandbox is not woken for what is refused then.
    fn check_room_before_resume(&mut self, work: WorkKind, operation: Operation) -> Result<(), EngineError> {
        if work != WorkKind::Traffic
            && matches!(decide(self.record.state, operation), Ok(Step::ResumeThenRun))
        {
            self.drop_abandoned_requests();
            self.slots.room()?;
        }
        Ok(())
    }

    /// Brings the sandbox to where the operation is possible.
    async fn ensure_running(&mut self, operation: Operation) -> Result<Agent, EngineError> {
        if self.record.state == SandboxState::Running && matches!(self.phase, ProcessState::Stopped) {
            // What could not be recorded when the processes were lost is recorded now, or the request fails again.
            self.processes_lost().await?;
        }
        match self.resume_and_connect(operation).await {
            Err(error) if error.is_sandbox_failure() && self.has_lost_processes().await => {
                self.processes_lost().await?;
                self.resume_and_connect(operation).await
            }
            reached => reached,
        }
    }

    async fn resume_and_connect(&mut self, operation: Operation) -> Result<Agent, EngineError> {
        match decide(self.record.state, operation)? {
            Step::ResumeThenRun => {
                self.resume().await?;
            }
            Step::Nothing
            | Step::Run
            | Step::Pause
            | Step::Resume
            | Step::Terminate
            | Step::ChangeNetwork => {}
        }
        self.agent().await
    }

    /// Whether it should have processes and has none.
    pub(super) async fn has_lost_processes(&self) -> bool {
        !matches!(self.phase, ProcessState::Stopped)
            && matches!(self.shared.driver.inspect(self.id()).await, Ok(Presence::Stopped | Presence::Absent))
    }

    /// The agent, over a new link if the last one broke.
    pub(super) async fn agent(&mut self) -> Result<Agent, EngineError> {
        if let ProcessState::Running(Some(agent)) = &self.phase
            && !agent.is_closed()
        {
            return Ok(agent.clone());
        }
        let agent = connect_agent(&self.shared, self.id(), RECONNECT_TIMEOUT).await?;
        self.phase = ProcessState::Running(Some(agent.clone()));
        Ok(agent)
    }

    fn take_slot(&mut self, work: WorkKind) -> Result<Slot, EngineError> {
        match work {
            WorkKind::Command | WorkKind::Terminal => {
                self.drop_abandoned_requests();
                Ok(self.slots.ask()?)
            }
            WorkKind::Traffic => {
                self.traffic += 1;
                Ok(Slot::Run)
            }
        }
    }

    /// Callers whose time was over, or who went away, wait no longer.
    fn drop_abandoned_requests(&mut self) {
        let slots = &mut self.slots;
        self.queue.retain(|waiting| {
            if waiting.reply.is_closed() {
                slots.gave_up();
            }
            !waiting.reply.is_closed()
        });
    }

    fn admission(&mut self, work: WorkKind, agent: Agent) -> Admission {
        if work != WorkKind::Traffic {
            self.shared.counters.executions_started.add(1);
        }
        Admission {
            permit: self.permit(work),
            agent,
            record: Arc::clone(&self.record),
            status: self.status.subscribe(),
        }
    }

    fn permit(&mut self, work: WorkKind) -> Permit {
        let counted = match work {
            WorkKind::Command | WorkKind::Terminal => Some(self.shared.commands.enter()),
            WorkKind::Traffic => None,
        };
        self.terminals += u32::from(work == WorkKind::Terminal);
        Permit::new(work, self.released.clone(), counted)
    }

    /// SandboxExecutions that another daemon left running are in the inbox of this one now, and hold their places.
    pub(super) fn adopt_detached_executions(&mut self) {
        for RecoveredExecution { execution, log, inbox } in self.executions.take_recovered() {
            let permit = execution.is_running().then(|| {
                self.slots.found();
                self.permit(if execution.record.terminal.is_some() {
                    WorkKind::Terminal
                } else {
                    WorkKind::Command
                })
            });
            let keeper = LogWriter {
                shared: Arc::clone(&self.shared),
                executions: Arc::clone(&self.executions),
                execution,
                log: Some(log),
                inbox,
                status: self.status.subscribe(),
                permit,
            };
            self.shared.tasks.spawn(keeper.run(None));
        }
    }

    /// Tells the keepers how the agent is reached.
    pub(super) fn publish_agent_availability(&self) {
        let now = match &self.phase {
            ProcessState::Running(Some(agent)) => AgentAvailability::Linked(agent.clone()),
            // A frozen agent does not answer.
            ProcessState::Running(None) | ProcessState::Frozen(_) => AgentAvailability::Waiting,
            ProcessState::Stopped => AgentAvailability::Gone,
        };
        self.executions.agent.send_if_modified(|reach| {
            let is_new = !reach.is_same(&now);
            if is_new {
                *reach = now;
            }
            is_new
        });
    }

    /// Somebody gave a permit back.
    pub(super) async fn release(&mut self, work: WorkKind) {
        self.touch();
        match work {
            WorkKind::Traffic => self.traffic = self.traffic.saturating_sub(1),
            WorkKind::Command => self.start_next_queued().await,
            WorkKind::Terminal => {
                self.terminals = self.terminals.saturating_sub(1);
                self.start_next_queued().await;
            }
        }
    }

    /// The free place goes to the first in the queue who still waits. If the sandbox was paused meanwhile it is resumed for
    /// it, as for one that comes now.
    async fn start_next_queued(&mut self) {
        while self.slots.finished() == Next::RunQueued {
            let Some(QueuedWork { work, operation, reply, .. }) = self.queue.pop_front() else { return };
            if reply.is_closed() {
                // Nobody is resumed for who went away; its place is free again.
                continue;
            }
            match self.ensure_running(operation).await {
                Ok(agent) => {
                    // One that went away drops the permit unseen, and it comes back as any other.
                    let _ = reply.send(Ok(self.admission(work, agent)));
                    return;
                }
                Err(error) => {
                    self.shared.counters.refusal(&error);
                    let _ = reply.send(Err(error));
                }
            }
        }
    }
}
