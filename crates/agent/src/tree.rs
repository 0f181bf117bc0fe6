//! Ending a command with everything it started, also what it put into other sessions or left to process 1. `serve`
//! begins a [`Hunt`], the loop gives it one round after the other, others are served in between.
//!
//! ```text
//! Stop ──(a round finds nobody new, or enough rounds)──> Kill ──(two rounds find nobody alive)──> over
//! ```
//!
//! First all members are stopped: a stopped process cannot fork, and it keeps its place in the process table, so that
//! even a fork bomb runs dry. Then all are killed. A round reads `/proc` and picks the members:
//!
//! - whoever is in the command's cgroup namespace (see `spawn`), which no command can leave;
//! - where that cannot tell, whoever descends from a member, shares a session with one, was one in an earlier round, or
//!   has the command's mark in its environment.
//!
//! Nothing here fails: a process that ended on its own needs no killing, and after [`LONGEST`] the hunt gives up on what
//! the kernel does not let die.

mod procfs;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

pub use procfs::Proc;
use procfs::{Namespace, Process};

/// Rounds of stopping before killing starts in any case.
const STOP_ROUNDS: u32 = 20;
/// Rounds in all.
const MOST_ROUNDS: u32 = 200;
/// Time in all.
const LONGEST: Duration = Duration::from_secs(2);
/// Longest pause between two rounds, for the killed to die.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Stop,
    Kill,
}

/// What came of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    Again,
    Over,
}

/// One command being ended.
pub struct Hunt {
    root: Pid,
    mark: Vec<u8>,
    /// The command's namespace, held open so that its number is not given to another while we look for it.
    namespace: Option<(OwnedFd, Namespace)>,
    stage: Stage,
    members: BTreeSet<i32>,
    sessions: BTreeSet<i32>,
    rounds: u32,
    empty_rounds: u32,
    started: Instant,
    /// When to play the next round.
    pub next: Instant,
}

impl Hunt {
    /// Begins with `root`, a child that was not yet collected, of the command that runs as `op`.
    pub fn new(root: Pid, op: u64, proc: &Proc, now: Instant) -> Self {
        // One call stops the command's own process group at once, and with it most bombs.
        let _ = rustix::process::kill_process_group(root, Signal::STOP);
        let namespace = proc.namespace(root).filter(|(_, namespace)| Some(*namespace) != proc.own());
        Self {
            root,
            mark: format!("{}={op}", crate::spawn::MARK).into_bytes(),
            namespace,
            stage: Stage::Stop,
            members: BTreeSet::from([root.as_raw_nonzero().get()]),
            sessions: BTreeSet::from([root.as_raw_nonzero().get()]),
            rounds: 0,
            empty_rounds: 0,
            started: now,
            next: now,
        }
    }

    /// Plays one round. `others` says whether a number is the first process of another running command.
    pub fn round(&mut self, proc: &Proc, others: impl Fn(i32) -> bool, now: Instant) -> Round {
        self.rounds += 1;
        let alive = self.alive(proc, others);
        match self.stage {
            Stage::Stop => {
                let fresh = alive.iter().filter(|pid| self.members.insert(**pid)).count();
                // The root was known before the first round, and has to be stopped as well.
                send(&alive, Signal::STOP);
                if fresh == 0 || self.rounds >= STOP_ROUNDS {
                    self.stage = Stage::Kill;
                    self.kill(&alive);
                }
            }
            Stage::Kill => {
                self.members.extend(&alive);
                self.kill(&alive);
                self.empty_rounds = if alive.is_empty() { self.empty_rounds + 1 } else { 0 };
            }
        }
        let given_up = self.rounds >= MOST_ROUNDS || now.duration_since(self.started) >= LONGEST;
        if self.empty_rounds >= 2 || given_up {
            return Round::Over;
        }
        self.next = now + self.pause();
        Round::Again
    }

    fn kill(&self, alive: &[i32]) {
        if alive.contains(&self.root.as_raw_nonzero().get()) {
            let _ = rustix::process::kill_process_group(self.root, Signal::KILL);
        }
        send(alive, Signal::KILL);
    }

    /// Stopping goes without pause; the killed need a moment, and more of it the longer it takes.
    fn pause(&self) -> Duration {
        match self.stage {
            Stage::Stop => Duration::ZERO,
            Stage::Kill if self.empty_rounds > 0 => Duration::ZERO,
            Stage::Kill => (Duration::from_micros(200) * self.rounds).min(PAUSE),
        }
    }

    /// The members that are neither dead nor dying.
    fn alive(&mut self, proc: &Proc, others: impl Fn(i32) -> bool) -> Vec<i32> {
        let mut alive = Vec::new();
        let mut doubtful = Vec::new();
        for pid in proc.pids() {
            match (proc.namespace_of(pid), &self.namespace) {
                (Some(found), Some((_, wanted))) if found == *wanted => alive.push(pid),
                // In the agent's own namespace where commands have theirs: none of any command's.
                (Some(found), Some(_)) if Some(found) == proc.own() => {}
                // With namespaces, one that shows none is dead; without, nobody shows one.
                _ => doubtful.push(pid),
            }
        }
        let mut doubtful: Vec<Process> =
            doubtful.into_iter().filter(|pid| !others(*pid)).filter_map(|pid| proc.process(pid)).collect();
        // Children may come before their parents: go over the rest until nobody joins.
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
        // It may have ended since the round saw it. Its number cannot have gone to another in between: numbers go round
        // the whole table before they come back.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
