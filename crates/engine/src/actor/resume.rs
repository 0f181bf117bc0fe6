//! Resume: the processes of a paused sandbox run again, or it is started again on its disk.

use api::{EventKind, SandboxState};
use rules::{Operation, PausedProcesses, ProcessState, RepeatableWork, decide};
use serde_json::json;
use tokio::time::Instant;

use super::end::end_processes;
use super::loss::{has_lost_processes, processes_lost};
use super::prepared_disk::adopt_prepared;
use super::stored_processes::{count_stored_processes, discard_memory};
use super::wake::{complete_wake, wake_processes};
use super::{Actor, LinkedProcesses, timeouts};
use crate::error::{CapacityError, EngineError};
use crate::host::{BOOT_TIMEOUT, RECONNECT_TIMEOUT, SETUP_TIMEOUT, guest};
use crate::link::{Agent, LinkError};
use crate::record::status::ResumeResult;

/// The note of a sandbox whose frozen or stored processes were discarded.
pub(super) const DISCARDED: &str = "its processes were discarded; its disk is unchanged";
/// The note of a sandbox whose frozen processes ended so that its disk can be mounted again.
const DISK_WAS_READ_ONLY: &str = "its processes ended at the resume, because its disk had become read-only";

/// Resumes a paused sandbox. One whose processes have ended is started again.
pub(super) async fn resume(actor: &mut Actor) -> Result<ResumeResult, EngineError> {
    decide(actor.record.state(), Operation::Resume)?;
    if matches!(actor.processes, LinkedProcesses::Frozen(_))
        && actor.context.host.has_read_only_disk(actor.id()).await
    {
        return resume_cold(actor, DISK_WAS_READ_ONLY).await;
    }
    let begun = Instant::now();
    let resumed = match try_resume(actor).await {
        // The end of frozen processes is noticed only here.
        Err(error) if error.is_backend_failure() && has_lost_processes(actor).await => {
            processes_lost(actor).await?;
            try_resume(actor).await
        }
        resumed => resumed,
    };
    if resumed.is_ok() {
        let latencies = actor.context.counters.latencies.of(actor.record.config.isolation);
        latencies.resume.observe(begun.elapsed());
    }
    resumed
}

/// Resumes a paused sandbox without the processes that it has. `note` says why they ended.
pub(super) async fn resume_cold(actor: &mut Actor, note: &str) -> Result<ResumeResult, EngineError> {
    decide(actor.record.state(), Operation::Resume)?;
    // A sandbox that does not fit keeps its processes.
    raise_reservation(actor).await?;
    if let Err(error) = discard_processes(actor, note).await {
        lower_reservation(actor);
        return Err(error);
    }
    let resumed = try_resume(actor).await;
    if resumed.is_err() {
        lower_reservation(actor);
    }
    resumed
}

/// Makes the processes run, or starts them, and commits that the sandbox runs. After a failure it is as before.
pub(super) async fn try_resume(actor: &mut Actor) -> Result<ResumeResult, EngineError> {
    raise_reservation(actor).await?;
    let states = [actor.processes.state(), actor.record.lifecycle.process_state()];
    let was_stored = states.contains(&ProcessState::Stored);
    let resumed = match run_processes(actor).await {
        Ok(agent) => commit_resumed(actor, agent).await,
        Err(error) => Err(error),
    };
    if resumed.is_ok() && was_stored {
        actor.context.counters.woken.add(1);
        discard_memory(actor).await;
    }
    if resumed.is_err() {
        undo_resume(actor).await;
    }
    resumed
}

/// Reserves what the sandbox needs to run.
pub(super) async fn raise_reservation(actor: &mut Actor) -> Result<(), EngineError> {
    while let Err(error) = actor.reservation.raise() {
        // Evicting warm sandboxes helps only if the host's capacity is what is missing.
        if !matches!(error, CapacityError::NoCapacity(_)) || !actor.context.provisioner.evict_one().await {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Releases what was reserved for a sandbox that does not run after all.
pub(super) fn lower_reservation(actor: &mut Actor) {
    let processes = actor.processes.state();
    // Processes that could not be frozen run, but nobody works with them.
    let is_paused = actor.record.state() == SandboxState::Paused && processes == ProcessState::Running;
    actor.reservation.lower(if is_paused { ProcessState::Frozen } else { processes });
}

/// Ends frozen processes and removes stored ones. The record is first: after a crash in between, the recovery does the rest.
async fn discard_processes(actor: &mut Actor, note: &str) -> Result<(), EngineError> {
    if matches!(actor.processes, LinkedProcesses::Ended) {
        return Ok(());
    }
    let now = actor.context.stamped_store.now();
    let ended = PausedProcesses::Ended { note: note.to_owned() };
    let next = actor.next_record(actor.record.lifecycle.paused(now, ended));
    actor.commit_events(next, Vec::new(), now).await?;
    if !matches!(actor.processes, LinkedProcesses::Stored) {
        return end_processes(actor).await;
    }
    actor.context.host.driver().discard_memory(actor.id()).await?;
    actor.context.interruptions.forget(RepeatableWork::Wake, actor.id().as_str()).await;
    count_stored_processes(actor).await;
    actor.processes = LinkedProcesses::Ended;
    actor.publish_agent();
    Ok(())
}

/// Thaws the processes, or starts the sandbox again on its disk. Returns the link to the agent, if it is open.
async fn run_processes(actor: &mut Actor) -> Result<Option<Agent>, EngineError> {
    if actor.record.lifecycle.has_prepared_disk() {
        adopt_prepared(actor).await?;
    }
    match &actor.processes {
        LinkedProcesses::Frozen(agent) => {
            actor.context.host.driver().resume(actor.id()).await?;
            match agent {
                Some(agent) => Ok(Some(agent.clone())),
                // Frozen by an earlier daemon, or by a wake that failed halfway. The new link kills the commands whose clients were
                // connected to that daemon.
                None => {
                    let agent = actor.connect(RECONNECT_TIMEOUT).await.ok();
                    complete_wake(actor, agent.as_ref()).await?;
                    Ok(agent)
                }
            }
        }
        LinkedProcesses::Running(agent) => Ok(agent.clone()),
        LinkedProcesses::Stored => wake_processes(actor).await.map(Some),
        LinkedProcesses::Ended => {
            let host = &actor.context.host;
            host.start(&actor.spec).await?;
            host.network().apply(&guest(&actor.record), &actor.record.config.network.egress).await?;
            let agent = actor.connect(BOOT_TIMEOUT).await?;
            match agent.make_dirs(&[&actor.record.config.workdir], SETUP_TIMEOUT).await {
                Ok(()) => {}
                // The owner has put something else at this path. Commands that use the directory report it.
                Err(LinkError::Refused { message, .. }) => {
                    tracing::warn!(id = %actor.id(), message, "could not create the working directory again");
                }
                Err(error) => return Err(error.into()),
            }
            Ok(Some(agent))
        }
    }
}

/// Commits that the sandbox runs. The event reports what happened to its processes meanwhile.
async fn commit_resumed(actor: &mut Actor, agent: Option<Agent>) -> Result<ResumeResult, EngineError> {
    let now = actor.context.stamped_store.now();
    let mut next = actor.next_record(actor.record.lifecycle.resumed(now));
    timeouts::renew(&mut next);
    let paused = &actor.record.lifecycle;
    let paused_duration_ms = paused.paused_since().map_or(0, |since| now.since(since));
    let mut data = json!({ "pausedDurationMs": paused_duration_ms });
    if let Some(note) = paused.note() {
        data["note"] = json!(note);
    }
    actor.commit(next, EventKind::SandboxResumed, data, now).await?;
    actor.processes = LinkedProcesses::Running(agent);
    // What the recovery gave up works again.
    actor.context.interruptions.forget(RepeatableWork::Recovery, actor.id().as_str()).await;
    actor.timeouts.touch(actor.context.stamped_store.now());
    actor.context.counters.resumed.add(1);
    Ok(ResumeResult { id: actor.id().clone(), resumed_at: now, paused_duration_ms })
}

/// Freezes or stops the sandbox again after a failed resume.
async fn undo_resume(actor: &mut Actor) {
    let host = &actor.context.host;
    let undone = match actor.processes.state() {
        ProcessState::Stored | ProcessState::Ended => host.stop(&guest(&actor.record)).await,
        ProcessState::Frozen | ProcessState::Running => match host.process_state(actor.id()).await {
            Ok(ProcessState::Running) => host.driver().pause(actor.id()).await.map_err(Into::into),
            Ok(_) => Ok(()),
            Err(error) => Err(error.into()),
        },
    };
    match undone {
        Ok(()) => actor.processes.freeze(),
        Err(error) => tracing::error!(id = %actor.id(), %error, "could not undo a failed resume"),
    }
    lower_reservation(actor);
}
