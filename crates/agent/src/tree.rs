//! Ends a command with all its descendants, also those in other sessions and orphans. `serve`
//! starts a [`TreeKill`]; the loop runs its rounds and serves other requests in between.
//!
//! ```text
//! Stop ──(a round finds no new process, or enough rounds)──> Kill ──(two rounds find none alive)──> over
//! ```
//!
//! First all members are stopped: a stopped process cannot fork, but counts against the limit of processes, so that
//! even a fork bomb stops growing. Then all are killed. A round reads `/proc` and selects the members:
//!
//! - processes in the command's cgroup namespace (see `spawn`), which no command can leave;
//! - without such namespaces, processes that descend from a member, share a session with one, were one in an earlier round, or
//!   have the command's mark in their environment.
//!
//! Nothing here fails: a process may end by itself, and after [`MAX_DURATION`] the tree kill gives up on processes that
//! the kernel keeps alive.

mod procfs;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

pub use procfs::Proc;
use procfs::{Namespace, Process};

/// Limit of the rounds that stop processes.
const STOP_ROUNDS: u32 = 20;
/// Limit of all rounds.
const MAX_ROUNDS: u32 = 200;
/// Limit of the duration of a tree kill.
const MAX_DURATION: Duration = Duration::from_secs(2);
/// Longest pause between two rounds, while killed processes end.
const MAX_PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillStage {
    Stop,
    Kill,
}

/// Result of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Repeat,
    Done,
}

/// The termination of one command.
pub struct TreeKill {
    root: Pid,
    mark: Vec<u8>,
    /// The command's namespace, held open so that its inode number is not reused.
    namespace: Option<(OwnedFd, Namespace)>,
    stage: KillStage,
    members: BTreeSet<i32>,
    sessions: BTreeSet<i32>,
    rounds: u32,
    empty_rounds: u32,
    started: Instant,
    /// When the next round is due.
    pub next: Instant,
}

impl TreeKill {
    /// Starts with `root`, an uncollected child of the command `op`.
    pub fn new(root: Pid, op: u64, proc: &Proc, now: Instant) -> Self {
        // One call stops the command's own process group, and with it most fork bombs.
        let _ = rustix::process::kill_process_group(root, Signal::STOP);
        let namespace = proc.namespace(root).filter(|(_, namespace)| Some(*namespace) != proc.own());
        Self {
            root,
            mark: format!("{}={op}", crate::spawn::MARK).into_bytes(),
            namespace,
            stage: KillStage::Stop,
            members: BTreeSet::from([root.as_raw_nonzero().get()]),
            sessions: BTreeSet::from([root.as_raw_nonzero().get()]),
            rounds: 0,
            empty_rounds: 0,
            started: now,
            next: now,
        }
    }

    /// Runs one round. `others` tells whether a pid is the first process of another running command.
    pub fn round(&mut self, proc: &Proc, others: impl Fn(i32) -> bool, now: Instant) -> Round {
        self.rounds += 1;
        let alive = self.alive(proc, others);
        match self.stage {
            KillStage::Stop => {
                let fresh = alive.iter().filter(|pid| self.members.insert(**pid)).count();
                // The root was known before the first round and has to be stopped too.
                send(&alive, Signal::STOP);
                if fresh == 0 || self.rounds >= STOP_ROUNDS {
                    self.stage = KillStage::Kill;
                    self.kill(&alive);
                }
            }
            KillStage::Kill => {
                self.members.extend(&alive);
                self.kill(&alive);
                self.empty_rounds = if alive.is_empty() { self.empty_rounds + 1 } else { 0 };
            }
        }
        let given_up = self.rounds >= MAX_ROUNDS || now.duration_since(self.started) >= MAX_DURATION;
        if self.empty_rounds >= 2 || given_up {
            return Round::Done;
        }
        self.next = now + self.pause();
        Round::Repeat
    }

    fn kill(&self, alive: &[i32]) {
        if alive.contains(&self.root.as_raw_nonzero().get()) {
            let _ = rustix::process::kill_process_group(self.root, Signal::KILL);
        }
        send(alive, Signal::KILL);
    }

    /// No pause while stopping; growing pauses while killed processes end.
    fn pause(&self) -> Duration {
        match self.stage {
            KillStage::Stop => Duration::ZERO,
            KillStage::Kill if self.empty_rounds > 0 => Duration::ZERO,
            KillStage::Kill => (Duration::from_micros(200) * self.rounds).min(MAX_PAUSE),
        }
    }

    /// The members that are neither dead nor dying.
    fn alive(&mut self, proc: &Proc, others: impl Fn(i32) -> bool) -> Vec<i32> {
        let mut alive = Vec::new();
        let mut doubtful = Vec::new();
        for pid in proc.pids() {
            match (proc.namespace_of(pid), &self.namespace) {
                (Some(found), Some((_, wanted))) if found == *wanted => alive.push(pid),
                // A process in the agent's own namespace does not belong to a command.
                (Some(found), Some(_)) if Some(found) == proc.own() => {}
                // With namespaces, a process without one is dead; on kernels without them, none has one.
                _ => doubtful.push(pid),
            }
        }
        let mut doubtful: Vec<Process> =
            doubtful.into_iter().filter(|pid| !others(*pid)).filter_map(|pid| proc.process(pid)).collect();
        // Children may be listed before their parents: repeat until no process is added.
        loop {
            let before = doubtful.len();
            doubtful.retain(|process| {
                let belongs = self.belongs(process, &alive, proc);
                if belongs {
                    self.sessions.insert(process.session);
                    alive.push(process.pid);
                }
                !belongs
            });
            if doubtful.len() == before {
                return alive;
            }
        }
    }

    fn belongs(&self, process: &Process, alive: &[i32], proc: &Proc) -> bool {
        self.members.contains(&process.pid)
            || self.members.contains(&process.parent)
            || alive.contains(&process.parent)
            || self.sessions.contains(&process.session)
            || (self.namespace.is_none() && proc.has_mark(process.pid, &self.mark))
    }
}

fn send(pids: &[i32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // It may have ended since the round saw it. Its pid cannot have been reused in between: the kernel goes through
        // all numbers first.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
