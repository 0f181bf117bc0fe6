//! Admit: lets callers work inside a sandbox, queues them, or refuses them.

use std::sync::Arc;

use api::SandboxState;
use rules::{LifecycleStep, Operation, ProcessState, Slot, decide};

use super::hibernate::settle_hibernation;
use super::loss::{has_lost_processes, processes_lost};
use super::resume::resume;
use super::workload::QueuedWork;
use super::{Actor, LinkedProcesses};
use crate::error::EngineError;
use crate::host::RECONNECT_TIMEOUT;
use crate::link::Agent;
use crate::registry::mailbox::{Admission, Reply, WorkKind};

/// Admits a caller, refuses it, or queues it if the operator allows a queue. Resumes the sandbox if the operation needs it.
pub(super) async fn admit(actor: &mut Actor, work: WorkKind, operation: Operation, reply: Reply<Admission>) {
    let may_resume = actor.record.config.auto_resume;
    let operation = if may_resume { operation } else { operation.without_auto_resume() };
    let answer = match try_admit(actor, work, operation).await {
        Ok(Some(admission)) => Ok(admission),
        Ok(None) => {
            actor.workload.enqueue(work, operation, reply);
            return;
        }
        Err(error) => {
            error.count_refusal(&actor.context.counters);
            Err(error)
        }
    };
    // If the caller is gone, the permit is dropped here and returns to the actor.
    let _ = reply.send(answer);
}

/// `None` if the command has to wait for an execution slot.
async fn try_admit(
    actor: &mut Actor,
    work: WorkKind,
    operation: Operation,
) -> Result<Option<Admission>, EngineError> {
    let step = decide(actor.record.state(), operation);
    if matches!(step, Ok(LifecycleStep::ResumeThenRun)) {
        // A command that will be refused must not resume the sandbox.
        actor.workload.check_room(work)?;
    }
    let runs = step.is_ok_and(|step| step != LifecycleStep::ResumeThenRun);
    let agent = match actor.processes.open_link().filter(|_| runs) {
        Some(agent) => agent.clone(),
        // Boxed to keep the future of the common case small.
        None => Box::pin(ensure_running(actor, operation)).await?,
    };
    match actor.workload.claim(work)? {
        Slot::Queue => Ok(None),
        Slot::Run => Ok(Some(admission(actor, work, agent))),
    }
}

fn admission(actor: &mut Actor, work: WorkKind, agent: Agent) -> Admission {
    if work.needs_slot() {
        actor.context.counters.executions_started.add(1);
    }
    Admission {
        permit: actor.workload.permit(work),
        agent,
        record: Arc::clone(&actor.record),
        status: actor.status.subscribe(),
    }
}

/// Resumes the sandbox and opens the link to its agent, as far as the operation needs it.
async fn ensure_running(actor: &mut Actor, operation: Operation) -> Result<Agent, EngineError> {
    if actor.record.state() == SandboxState::Running && actor.processes.state() == ProcessState::Ended {
        // The loss of the processes could not be recorded before. If it cannot be recorded now, the request fails.
        processes_lost(actor).await?;
    }
    settle_hibernation(actor).await?;
    match resume_and_connect(actor, operation).await {
        Err(error) if error.is_sandbox_failure() && has_lost_processes(actor).await => {
            processes_lost(actor).await?;
            resume_and_connect(actor, operation).await
        }
        connected => connected,
    }
}

async fn resume_and_connect(actor: &mut Actor, operation: Operation) -> Result<Agent, EngineError> {
    if decide(actor.record.state(), operation)? == LifecycleStep::ResumeThenRun {
        resume(actor).await?;
    }
    if let Some(agent) = actor.processes.open_link() {
        return Ok(agent.clone());
    }
    let agent = actor.connect(RECONNECT_TIMEOUT).await?;
    actor.processes = LinkedProcesses::Running(Some(agent.clone()));
    Ok(agent)
}

/// Takes back a permit, and gives its slot to the next queued command whose caller still waits. If the sandbox was paused in
/// the meantime, it is resumed for the command.
pub(super) async fn release(actor: &mut Actor, work: WorkKind) {
    actor.timeouts.touch(actor.context.stamped_store.now());
    actor.workload.release(work);
    while let Some(QueuedWork { work, operation, reply, .. }) = actor.workload.next_queued(work) {
        if reply.is_closed() {
            // The sandbox is not resumed for a caller that is gone; the slot is free again.
            continue;
        }
        match ensure_running(actor, operation).await {
            Ok(agent) => {
                // If the caller is gone, the permit is dropped here and returns to the actor.
                let _ = reply.send(Ok(admission(actor, work, agent)));
                return;
            }
            Err(error) => {
                error.count_refusal(&actor.context.counters);
                let _ = reply.send(Err(error));
            }
        }
    }
}
