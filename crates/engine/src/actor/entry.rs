//! Letting callers in to work inside, and counting them.

use std::sync::Arc;

use api::SandboxState;
use driver::Presence;
use rules::{Next, Operation, Slot, Step, decide};

use super::{Actor, Phase};
use crate::agent_start::{REACH_AGAIN, reach};
use crate::counters::Counted;
use crate::detached::Keeper;
use crate::error::EngineError;
use crate::handle::{Entry, Permit, Reply, Work};
use crate::kept::book::{Found, Reach};
use crate::link::Agent;

/// Somebody who waits for a place.
pub(super) struct Waiting {
    work: Work,
    operation: Operation,
    reply: Reply<Entry>,
    _counted: Counted,
}

impl Actor {
    /// Answers at once, or keeps a command waiting for a place if the operator allows a queue.
    pub(super) async fn enter(&mut self, operation: Operation, reply: Reply<Entry>) {
        let work = if matches!(operation, Operation::Execute { .. }) { Work::Command } else { Work::Traffic };
        self.enter_for(work, operation, reply).await;
    }

    /// The same for what the operation alone does not say.
    pub(super) async fn enter_for(&mut self, work: Work, operation: Operation, reply: Reply<Entry>) {
        let ready = match self.room_before_waking(work, operation) {
            Ok(()) => self.make_ready(operation).await,
            Err(error) => Err(error),
        };
        let admitted = match ready {
            Ok(agent) => self.take_place(work).map(|place| (agent, place)),
            Err(error) => Err(error),
        };
        let answer = match admitted {
            Ok((_, Slot::Queue)) => {
                let _counted = self.shared.waiting.one();
                self.queue.push_back(Waiting { work, operation, reply, _counted });
                return;
            }
            Ok((agent, Slot::Run)) => Ok(self.entry(work, agent)),
            Err(error) => {
                self.shared.counters.refusal(&error);
                Err(error)
            }
        };
        // A caller that went away drops its permit, which comes back as any other.
        let _ = reply.send(answer);
    }

    /// A sandbox is not woken for what is refused then.
    fn room_before_waking(&mut self, work: Work, operation: Operation) -> Result<(), EngineError> {
        if work != Work::Traffic && matches!(decide(self.record.state, operation), Ok(Step::ResumeThenRun)) {
            self.forget_who_gave_up();
            self.slots.room()?;
        }
        Ok(())
    }

    /// Brings the sandbox to where the operation is possible.
    async fn make_ready(&mut self, operation: Operation) -> Result<Agent, EngineError> {
        if self.record.state == SandboxState::Running && matches!(self.phase, Phase::Stopped) {
            // What could not be recorded when the processes were lost is recorded now, or the request fails again.
            self.processes_lost().await?;
        }
        match self.wake_and_reach(operation).await {
            Err(EngineError::Driver(_) | EngineError::Agent(_)) if self.is_empty_inside().await => {
                self.processes_lost().await?;
                self.wake_and_reach(operation).await
            }
            reached => reached,
        }
    }

    async fn wake_and_reach(&mut self, operation: Operation) -> Result<Agent, EngineError> {
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
    pub(super) async fn is_empty_inside(&self) -> bool {
        !matches!(self.phase, Phase::Stopped)
            && matches!(self.shared.driver.inspect(self.id()).await, Ok(Presence::Stopped | Presence::Absent))
    }

    /// The agent, over a new link if the last one broke.
    pub(super) async fn agent(&mut self) -> Result<Agent, EngineError> {
        if let Phase::Running(Some(agent)) = &self.phase
            && !agent.is_closed()
        {
            return Ok(agent.clone());
        }
        let agent = reach(&self.shared, self.id(), REACH_AGAIN).await?;
        self.phase = Phase::Running(Some(agent.clone()));
        Ok(agent)
    }

    fn take_place(&mut self, work: Work) -> Result<Slot, EngineError> {
        match work {
            Work::Command | Work::Terminal => {
                self.forget_who_gave_up();
                Ok(self.slots.ask()?)
            }
            Work::Traffic => {
                self.traffic += 1;
                Ok(Slot::Run)
            }
        }
    }

    /// Callers whose time was over, or who went away, wait no longer.
    fn forget_who_gave_up(&mut self) {
        let slots = &mut self.slots;
        self.queue.retain(|waiting| {
            if waiting.reply.is_closed() {
                slots.gave_up();
            }
            !waiting.reply.is_closed()
        });
    }

    fn entry(&mut self, work: Work, agent: Agent) -> Entry {
        if work != Work::Traffic {
            self.shared.counters.executions_started.add(1);
        }
        Entry {
            permit: self.permit(work),
            agent,
            record: Arc::clone(&self.record),
            status: self.status.subscribe(),
        }
    }

    fn permit(&mut self, work: Work) -> Permit {
        let counted = match work {
            Work::Command | Work::Terminal => Some(self.shared.commands.one()),
            Work::Traffic => None,
        };
        self.terminals += u32::from(work == Work::Terminal);
        Permit::new(work, self.leaving.clone(), counted)
    }

    /// Executions that another daemon left running are in the care of this one now, and hold their places.
    pub(super) fn keep_found(&mut self) {
        for Found { execution, log, care } in self.executions.take_found() {
            let permit = execution.is_running().then(|| {
                self.slots.found();
                self.permit(if execution.record.terminal.is_some() { Work::Terminal } else { Work::Command })
            });
            let keeper = Keeper {
                shared: Arc::clone(&self.shared),
                executions: Arc::clone(&self.executions),
                execution,
                log: Some(log),
                care,
                status: self.status.subscribe(),
                permit,
            };
            self.shared.tasks.spawn(keeper.run(None));
        }
    }

    /// Tells the keepers how the agent is reached.
    pub(super) fn publish_reach(&self) {
        let now = match &self.phase {
            Phase::Running(Some(agent)) => Reach::Linked(agent.clone()),
            // A frozen agent does not answer.
            Phase::Running(None) | Phase::Frozen(_) => Reach::Waiting,
            Phase::Stopped => Reach::Gone,
        };
        self.executions.reach.send_if_modified(|reach| {
            let is_new = !reach.is_same(&now);
            if is_new {
                *reach = now;
            }
            is_new
        });
    }

    /// Somebody gave a permit back.
    pub(super) async fn left(&mut self, work: Work) {
        self.touch();
        match work {
            Work::Traffic => self.traffic = self.traffic.saturating_sub(1),
            Work::Command => self.give_place().await,
            Work::Terminal => {
                self.terminals = self.terminals.saturating_sub(1);
                self.give_place().await;
            }
        }
    }

    /// The free place goes to the first in the queue who still waits. If the sandbox was paused meanwhile it is resumed for
    /// it, as for one that comes now.
    async fn give_place(&mut self) {
        while self.slots.finished() == Next::RunQueued {
            let Some(Waiting { work, operation, reply, .. }) = self.queue.pop_front() else { return };
            if reply.is_closed() {
                // Nobody is resumed for who went away; its place is free again.
                continue;
            }
            match self.make_ready(operation).await {
                Ok(agent) => {
                    // One that went away drops the permit unseen, and it comes back as any other.
                    let _ = reply.send(Ok(self.entry(work, agent)));
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
