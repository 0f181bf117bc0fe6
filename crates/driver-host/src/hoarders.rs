//! Ends commands that hold memory of the host which no limit of their sandbox counts.
//!
//! The kernel has no limit for such memory, so the engine lets this module look several times a second. A look reads a total of the host;
//! only when that is high are the processes of sandboxes examined. The commands of a frozen sandbox cannot end, so a sandbox is also
//! examined before it is paused.

mod connections;
mod growth;
mod lxcfs_files;
mod lxcfs_watch;
mod queues;
mod slab_watch;

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, Once};
use std::time::Duration;

use api::SandboxId;
use base::IgnorePoison;
use driver::Hoard;
use rustix::process::{Pid, Signal, kill_process};

use crate::cgroup::{Cgroups, Population, is_gone};
use crate::paths::{Paths, first_process};
use crate::removal::poll;
use crate::settings::Settings;
use growth::Pace;
use lxcfs_watch::LxcfsWatch;
use slab_watch::SlabWatch;

/// How long a pause waits for the end of commands that were killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the processes of a sandbox are listed: a fork that had begun may add one after the first list.
const KILL_ROUNDS: usize = 20;

/// Watches the memory that no limit counts.
#[derive(Debug)]
pub struct Hoarders {
    settings: Settings,
    cgroups: Cgroups,
    lxcfs: LxcfsWatch,
    slabs: SlabWatch,
    connection_looks: Mutex<Pace>,
    /// What is not reported yet.
    ended_before_pauses: Mutex<Vec<(SandboxId, Hoard)>>,
    /// The first look ends what an earlier daemon has begun.
    first_look: Once,
}

impl Hoarders {
    pub fn new(settings: &Settings, cgroups: &Cgroups) -> io::Result<Self> {
        Ok(Self {
            settings: settings.clone(),
            cgroups: cgroups.clone(),
            lxcfs: LxcfsWatch::default(),
            slabs: SlabWatch::of_host()?,
            connection_looks: Mutex::default(),
            ended_before_pauses: Mutex::default(),
            first_look: Once::new(),
        })
    }

    /// Kills the commands of sandboxes that hold too much. Their agents go on. Returns which, and what they held.
    pub fn end(&self) -> io::Result<Vec<(SandboxId, Hoard)>> {
        self.first_look.call_once(|| self.restore_forks());
        let ended = [
            (Hoard::Connections, connections::end_hoarders(self)),
            (Hoard::SocketQueues, queues::end_hoarders(self)),
            (Hoard::LxcfsFiles, lxcfs_files::end_hoarders(self)),
        ];
        let mut all = Vec::new();
        for (hoard, ids) in ended {
            all.extend(ids?.into_iter().map(|id| (id, hoard)));
        }
        all.append(&mut self.ended_before_pauses.lock().ignore_poison());
        Ok(all)
    }

    /// Kills the commands of a sandbox that is about to be frozen if they hold too much. The next [`Self::end`] returns it.
    pub fn end_before_pause(&self, id: &SandboxId) -> io::Result<()> {
        let hoard = if connections::is_hoarder_now(self, id)? {
            Hoard::Connections
        } else if queues::is_hoarder_now(self, id)? {
            Hoard::SocketQueues
        } else if lxcfs_files::is_hoarder_now(self, id) {
            Hoard::LxcfsFiles
        } else {
            return Ok(());
        };
        if self.end_commands(id) {
            self.ended_before_pauses.lock().ignore_poison().push((id.clone(), hoard));
            self.wait_for_end(id);
        }
        Ok(())
    }

    /// Waits for the end of killed commands: frozen before, they would keep what they hold.
    fn wait_for_end(&self, id: &SandboxId) {
        let agent = first_process(&Paths::of(&self.settings, id));
        let has_only_agent =
            || Ok(self.cgroups.processes(id.as_str())?.into_iter().all(|pid| Some(pid) == agent));
        if let Err(error) = poll(END_TIMEOUT, has_only_agent) {
            tracing::warn!(%id, %error, "killed commands of a sandbox have not ended before its pause");
        }
    }

    /// A daemon may have crashed between the two ends of [`Self::end_commands`].
    fn restore_forks(&self) {
        for id in self.cgroups.sandboxes().unwrap_or_default() {
            log_failure(&id, self.cgroups.restore_forks(id.as_str(), self.settings.pids_max));
        }
    }

    /// Kills the commands of those sandboxes that are hoarders. Returns which had any.
    fn end_all(&self, is_hoarder: impl Fn(&SandboxId) -> bool) -> io::Result<Vec<SandboxId>> {
        let ids = self.cgroups.sandboxes()?.into_iter();
        Ok(ids.filter(|id| is_hoarder(id) && self.end_commands(id)).collect())
    }

    /// Kills all processes but the agent. Returns whether there were any.
    fn end_commands(&self, id: &SandboxId) -> bool {
        let name = id.as_str();
        let agent = first_process(&Paths::of(&self.settings, id));
        // A chain of forks could escape from list to list. Without forks nothing starts meanwhile, and a process that has been sent SIGKILL
        // forks no more.
        let before = self.cgroups.forbid_forks(name);
        let mut ended = BTreeSet::new();
        for _ in 0..KILL_ROUNDS {
            // Stopped processes would end later; the memory of a paused sandbox does not grow.
            if !matches!(self.cgroups.population(name), Ok(Population::Running)) {
                break;
            }
            let processes = self.cgroups.processes(name).unwrap_or_default();
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
        let most = self.settings.pids_max;
        let allowed = before.and_then(|before| self.cgroups.allow_forks(name, &before, most));
        log_failure(id, allowed);
        !ended.is_empty()
    }
}

fn log_failure(id: &SandboxId, result: io::Result<()>) {
    if let Err(error) = result.or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) }) {
        tracing::error!(%id, %error, "the limit of processes of a sandbox cannot be changed");
    }
}
