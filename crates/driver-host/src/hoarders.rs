//! Ends commands that hold memory of the host which no limit of their sandbox counts.
//!
//! The kernel has no limit for such memory, so the engine lets this module look several times a second. A look reads a total of the host;
//! only when that is high are the processes of sandboxes examined. The commands of a frozen sandbox cannot end, so a sandbox is also
//! examined before it is paused.

mod connections;
mod lxcfs_files;
mod queues;

use std::collections::BTreeSet;
use std::io;
use std::sync::MutexGuard;
use std::time::Duration;

use api::SandboxId;
use base::IgnorePoison;
use driver::Hoard;
use rustix::process::{Pid, Signal, kill_process};

use crate::cgroup::{Population, is_gone};
use crate::inner::Inner;
use crate::paths::{Paths, first_process};
use crate::removal::poll;

/// How long a pause waits for the end of commands that were killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the processes of a sandbox are listed: a fork that had begun may add one after the first list.
const KILL_ROUNDS: usize = 20;

/// Kills the commands of sandboxes that hold too much. Their agents go on. Returns which, and what they held.
pub fn end(inner: &Inner) -> io::Result<Vec<(SandboxId, Hoard)>> {
    inner.first_look.call_once(|| restore_forks(inner));
    let ended = [
        (Hoard::Connections, connections::end_hoarders(inner)),
        (Hoard::SocketQueues, queues::end_hoarders(inner)),
        (Hoard::LxcfsFiles, lxcfs_files::end_hoarders(inner)),
    ];
    let mut all = Vec::new();
    for (hoard, ids) in ended {
        all.extend(ids?.into_iter().map(|id| (id, hoard)));
    }
    all.append(&mut ended_before_pauses(inner));
    Ok(all)
}

/// Kills the commands of a sandbox that is about to be frozen if they hold too much. The next [`end`] returns it.
pub fn end_before_pause(inner: &Inner, id: &SandboxId) -> io::Result<()> {
    let hoard = if connections::is_hoarder_now(inner, id)? {
        Hoard::Connections
    } else if queues::is_hoarder_now(inner, id)? {
        Hoard::SocketQueues
    } else if lxcfs_files::is_hoarder_now(inner, id) {
        Hoard::LxcfsFiles
    } else {
        return Ok(());
    };
    if end_commands(inner, id) {
        ended_before_pauses(inner).push((id.clone(), hoard));
        wait_for_end(inner, id);
    }
    Ok(())
}

/// Waits for the end of killed commands: frozen before, they would keep what they hold.
fn wait_for_end(inner: &Inner, id: &SandboxId) {
    let agent = first_process(&Paths::of(&inner.settings, id));
    let has_only_agent =
        || Ok(inner.cgroups.processes(id.as_str())?.into_iter().all(|pid| Some(pid) == agent));
    if let Err(error) = poll(END_TIMEOUT, has_only_agent) {
        tracing::warn!(%id, %error, "killed commands of a sandbox have not ended before its pause");
    }
}

fn ended_before_pauses(inner: &Inner) -> MutexGuard<'_, Vec<(SandboxId, Hoard)>> {
    inner.ended_before_pauses.lock().ignore_poison()
}

/// A daemon may have crashed between the two ends of [`end_commands`].
fn restore_forks(inner: &Inner) {
    for id in sandboxes(inner).unwrap_or_default() {
        log_failure(&id, inner.cgroups.restore_forks(id.as_str(), inner.settings.pids_max));
    }
}

fn log_failure(id: &SandboxId, result: io::Result<()>) {
    if let Err(error) = result.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) }) {
        tracing::error!(%id, %error, "the limit of processes of a sandbox cannot be changed");
    }
}

/// The sandboxes that have cgroups.
fn sandboxes(inner: &Inner) -> io::Result<Vec<SandboxId>> {
    Ok(inner.cgroups.names()?.into_iter().filter_map(|name| name.parse().ok()).collect())
}

/// Kills all processes but the agent. Returns whether there were any.
fn end_commands(inner: &Inner, id: &SandboxId) -> bool {
    let name = id.as_str();
    let agent = first_process(&Paths::of(&inner.settings, id));
    // A chain of forks could escape from list to list. Without forks nothing starts meanwhile, and a process that has been sent SIGKILL
    // forks no more.
    let before = inner.cgroups.forbid_forks(name);
    let mut ended = BTreeSet::new();
    for _ in 0..KILL_ROUNDS {
        // Stopped processes would end later; the memory of a paused sandbox does not grow.
        if !matches!(inner.cgroups.population(name), Ok(Population::Running)) {
            break;
        }
        let processes = inner.cgroups.processes(name).unwrap_or_default();
        let commands: Vec<i32> =
            processes.into_iter().filter(|pid| Some(*pid) != agent && !ended.contains(pid)).collect();
        if commands.is_empty() {
            break;
        }
        for pid in commands.iter().copied().filter_map(Pid::from_raw) {
            // Fails if it has ended.
            let _ = kill_process(pid, Signal::KILL);
        }
        ended.extend(commands);
    }
    let most = inner.settings.pids_max;
    let allowed = before.and_then(|before| inner.cgroups.allow_forks(name, &before, most));
    log_failure(id, allowed);
    !ended.is_empty()
}
