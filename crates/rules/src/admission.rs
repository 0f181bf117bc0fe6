//! Whether one more fits: resources of the host (`RESOURCE_EXHAUSTED`), and commands of one sandbox (decision 10).
//!
//! The engine keeps one [`Usage`] for the host and one [`Slots`] a sandbox, and changes them only through these
//! functions. A refusal changes nothing.
//!
//! What a sandbox holds: while it runs, its cpu, memory and disk. While it is paused, its disk **and its memory**: frozen
//! processes stay resident, so that giving their memory away would let resumed sandboxes together exceed the host. Its cpu
//! is free for others, and resuming has to be admitted again. While it is stopped (a rebooted host), only its disk.

use std::fmt;

use api::Resources;

/// What this host has, in the units of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// How often each resource may be given away. What is no positive number counts as 0: nothing fits then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overcommit {
    pub cpu: f64,
    pub memory: f64,
    pub disk: f64,
}

/// What may be given away in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// What is given away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// How much of itself a sandbox holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hold {
    Running,
    /// Its processes are frozen and resident.
    Paused,
    /// It has no processes, only its disk.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    Cpu,
    Memory,
    Disk,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "vCPUs",
            Self::Memory => "MB of memory",
            Self::Disk => "MB of disk",
        })
    }
}

/// The host has no room for it now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no capacity: {asked} {what} were asked for and {free} are free; try again when other sandboxes have ended"
)]
pub struct Exhausted {
    pub what: Resource,
    pub asked: u64,
    pub free: u64,
}

impl Capacity {
    pub fn new(host: Host, overcommit: Overcommit) -> Self {
        Self {
            cpu: times(host.cpu, overcommit.cpu),
            memory_mb: times(host.memory_mb, overcommit.memory),
            disk_mb: times(host.disk_mb, overcommit.disk),
        }
    }

    /// What is used once a new sandbox runs.
    pub fn admit(&self, used: Usage, resources: Resources) -> Result<Usage, Exhausted> {
        self.add(used, Usage::of(resources, Hold::Running))
    }

    /// What is used once a sandbox that is paused or stopped runs again.
    pub fn resume(&self, used: Usage, resources: Resources, from: Hold) -> Result<Usage, Exhausted> {
        let running = Usage::of(resources, Hold::Running);
        self.add(used, running.minus(Usage::of(resources, from)))
    }

    /// What is used with `more`, if that fits. Only what is asked for is looked at: a host that is over its capacity in
    /// one resource (after a change of its configuration) still gives out the others.
    fn add(&self, used: Usage, more: Usage) -> Result<Usage, Exhausted> {
        let checks = [
            (Resource::Cpu, more.cpu, self.cpu.saturating_sub(used.cpu)),
            (Resource::Memory, more.memory_mb, self.memory_mb.saturating_sub(used.memory_mb)),
            (Resource::Disk, more.disk_mb, self.disk_mb.saturating_sub(used.disk_mb)),
        ];
        match checks.into_iter().find(|(_, asked, free)| asked > free) {
            Some((what, asked, free)) => Err(Exhausted { what, asked, free }),
            None => Ok(used.plus(more)),
        }
    }
}

impl Usage {
    /// What one sandbox holds.
    pub fn of(resources: Resources, hold: Hold) -> Self {
        let (cpu, memory_mb) = match hold {
            Hold::Running => (resources.cpu, resources.memory_mb),
            Hold::Paused => (0, resources.memory_mb),
            Hold::Stopped => (0, 0),
        };
        Self { cpu: cpu.into(), memory_mb: memory_mb.into(), disk_mb: resources.disk_mb.into() }
    }

    /// What is used once a running sandbox is paused.
    pub fn pause(self, resources: Resources) -> Self {
        self.minus(Usage::of(resources, Hold::Running)).plus(Usage::of(resources, Hold::Paused))
    }

    /// What is used once a sandbox is gone.
    pub fn release(self, resources: Resources, hold: Hold) -> Self {
        self.minus(Usage::of(resources, hold))
    }

    /// Both together, without asking whether they fit: for sandboxes that are found again and exist already.
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            disk_mb: self.disk_mb.saturating_add(other.disk_mb),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            disk_mb: self.disk_mb.saturating_sub(other.disk_mb),
        }
    }
}

/// A cast from a float stops at the ends of the range, and makes 0 of what is no number.
fn times(total: u64, factor: f64) -> u64 {
    (total as f64 * factor) as u64
}

/// The commands of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    pub limit: u32,
    pub queue_limit: u32,
    running: u32,
    queued: u32,
}

/// What becomes of one more command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// It has a place; [`Slots::finished`] gives it back.
    Run,
    /// It waits; it runs when a [`Slots::finished`] says so, or leaves by [`Slots::gave_up`].
    Queue,
}

/// Whether a place that became free went to the command that waited longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    RunQueued,
    Idle,
}

/// The sandbox runs all the commands it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{running} commands are running in the sandbox and {queued} wait, of {limit} and {queue_limit} allowed; try again when one has ended"
)]
pub struct TooManyExecutions {
    pub running: u32,
    pub queued: u32,
    pub limit: u32,
    pub queue_limit: u32,
}

impl Slots {
    pub fn new(limit: u32, queue_limit: u32) -> Self {
        Self { limit, queue_limit, running: 0, queued: 0 }
    }

    pub fn running(&self) -> u32 {
        self.running
    }

    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Whether one more command would run or wait.
    pub fn room(&self) -> Result<(), TooManyExecutions> {
        Self { ..*self }.ask().map(drop)
    }

    /// One more command comes. A newcomer never overtakes one that waits.
    pub fn ask(&mut self) -> Result<Slot, TooManyExecutions> {
        if self.running < self.limit && self.queued == 0 {
            self.running += 1;
            Ok(Slot::Run)
        } else if self.queued < self.queue_limit {
            self.queued += 1;
            Ok(Slot::Queue)
        } else {
            let Self { limit, queue_limit, running, queued } = *self;
            Err(TooManyExecutions { running, queued, limit, queue_limit })
        }
    }

    /// A command that an earlier daemon let in runs on, whether it would fit or not.
    pub fn found(&mut self) {
        self.running = self.running.saturating_add(1);
    }

    /// A running command ended.
    pub fn finished(&mut self) -> Next {
        if self.queued > 0 && self.running <= self.limit {
            self.queued -= 1;
            return Next::RunQueued;
        }
        self.running = self.running.saturating_sub(1);
        Next::Idle
    }

    /// A waiting command went away.
    pub fn gave_up(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
