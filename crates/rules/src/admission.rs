//! Admission: whether the host has capacity for one more sandbox (`RESOURCE_EXHAUSTED`), and whether a sandbox may run one more
//! command.
//!
//! The engine keeps one [`Usage`] for the host and one [`Slots`] per sandbox, and changes them only through these functions. A
//! refusal changes nothing.
//!
//! Capacity is a promise: the host's resources times an overcommit factor. A running sandbox holds its CPU, memory and disk. A
//! paused or stopped sandbox holds only its disk, and resuming it is admitted again. The memory that frozen processes still occupy
//! is not promised to them; it is part of the memory really in use, which [`crate::Shortage`] checks before a sandbox starts.

pub mod capacity_warning;
pub mod pressure;
pub mod turns;

use std::fmt;

use api::Resources;

use crate::{ProcessState, ReachedLimit};

/// The resources of the host, in the units of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// How many times each resource may be promised. A factor that is not a positive number counts as 0: nothing fits then.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overcommit {
    pub cpu: f64,
    pub memory: f64,
    pub disk: f64,
}

/// What may be promised in total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// What is promised, on the host or to one account.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
}

/// What the host can run out of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    Cpu,
    Memory,
    Disk,
}

impl Resource {
    /// The configuration key that raises the capacity.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Cpu => "capacity.overcommit_cpu",
            Self::Memory => "capacity.overcommit_memory",
            Self::Disk => "capacity.overcommit_disk",
        }
    }

    /// What a number of it is, for messages.
    const fn capacity(self) -> &'static str {
        match self {
            Self::Cpu => "vCPUs for all sandboxes",
            Self::Memory => "MB of memory for all sandboxes",
            Self::Disk => "MB of disk for all sandboxes",
        }
    }
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

/// The host has no capacity for the sandbox now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.why(), self.limit())]
pub struct Exhausted {
    pub resource: Resource,
    pub requested: u64,
    pub free: u64,
    pub total: u64,
}

impl Exhausted {
    /// The message without the limit.
    pub fn why(&self) -> String {
        let Self { resource, requested, free, total } = self;
        format!(
            "the host lacks capacity: {requested} {resource} requested, {free} of {total} free; pause or terminate other sandboxes"
        )
    }

    /// The limit for the error's body.
    pub fn limit(&self) -> ReachedLimit {
        ReachedLimit::set_by_operator(self.total, self.resource.capacity(), self.resource.key())
    }
}

impl Capacity {
    /// The capacity of a host whose resources are promised several times over.
    pub fn new(host: Host, overcommit: Overcommit) -> Self {
        Self {
            cpu: times(host.cpu, overcommit.cpu),
            memory_mb: times(host.memory_mb, overcommit.memory),
            disk_mb: times(host.disk_mb, overcommit.disk),
        }
    }

    /// With the disk that can be promised now, which changes with what the file system really has left.
    #[must_use]
    pub fn with_disk(self, disk_mb: u64, overcommit: f64) -> Self {
        Self { disk_mb: times(disk_mb, overcommit), ..self }
    }

    /// The usage with one more running sandbox.
    pub fn admit(&self, used: Usage, resources: Resources) -> Result<Usage, Exhausted> {
        self.add(used, Usage::of(resources, ProcessState::Running))
    }

    /// The usage after a paused or stopped sandbox runs again.
    pub fn resume(&self, used: Usage, resources: Resources, from: ProcessState) -> Result<Usage, Exhausted> {
        let running = Usage::of(resources, ProcessState::Running);
        self.add(used, running.minus(Usage::of(resources, from)))
    }

    /// The usage with `more`, if it fits. Only requested resources are checked: a host that is over its capacity in one resource
    /// (after a change of its configuration) still hands out the others.
    fn add(&self, used: Usage, more: Usage) -> Result<Usage, Exhausted> {
        let checks = [
            (Resource::Cpu, more.cpu, used.cpu, self.cpu),
            (Resource::Memory, more.memory_mb, used.memory_mb, self.memory_mb),
            (Resource::Disk, more.disk_mb, used.disk_mb, self.disk_mb),
        ];
        match checks.into_iter().find(|(_, requested, used, total)| *requested > total.saturating_sub(*used))
        {
            Some((resource, requested, used, total)) => {
                Err(Exhausted { resource, requested, free: total.saturating_sub(used), total })
            }
            None => Ok(used.plus(more)),
        }
    }
}

impl Usage {
    /// What one sandbox holds, by where its processes are.
    pub fn of(resources: Resources, processes: ProcessState) -> Self {
        let (cpu, memory_mb) = match processes {
            ProcessState::Running => (resources.cpu, resources.memory_mb),
            ProcessState::Frozen | ProcessState::Stored | ProcessState::Ended => (0, 0),
        };
        Self { cpu: cpu.into(), memory_mb: memory_mb.into(), disk_mb: resources.disk_mb.into() }
    }

    /// The usage after a running sandbox is paused.
    #[must_use]
    pub fn pause(self, resources: Resources) -> Self {
        self.minus(Usage::of(resources, ProcessState::Running))
            .plus(Usage::of(resources, ProcessState::Frozen))
    }

    /// The usage after a sandbox is gone.
    #[must_use]
    pub fn release(self, resources: Resources, processes: ProcessState) -> Self {
        self.minus(Usage::of(resources, processes))
    }

    /// The sum, without a check: for recovered sandboxes, which exist already.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_add(other.cpu),
            memory_mb: self.memory_mb.saturating_add(other.memory_mb),
            disk_mb: self.disk_mb.saturating_add(other.disk_mb),
        }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.saturating_sub(other.cpu),
            memory_mb: self.memory_mb.saturating_sub(other.memory_mb),
            disk_mb: self.disk_mb.saturating_sub(other.disk_mb),
        }
    }
}

/// A cast from a float saturates at the ends of the range, and turns NaN into 0.
fn times(total: u64, factor: f64) -> u64 {
    (total as f64 * factor) as u64
}

/// Which commands share slots. Attached and detached ones have their own, so that neither keep the others from starting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SlotKind {
    /// Commands that end with their request.
    Attached,
    /// Detached commands and terminals.
    Detached,
}

impl SlotKind {
    /// The configuration key of their number.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Attached => "limits.concurrent_executions",
            Self::Detached => "limits.detached_executions",
        }
    }

    const fn counts(self) -> &'static str {
        match self {
            Self::Attached => "commands at a time in a sandbox",
            Self::Detached => "detached commands and terminals at a time in a sandbox",
        }
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Attached => "commands",
            Self::Detached => "detached commands and terminals",
        })
    }
}

/// The commands of one kind in one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slots {
    kind: SlotKind,
    pub limit: u32,
    pub queue_limit: u32,
    running: u32,
    queued: u32,
}

/// The decision on one more command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// It runs; [`Slots::release`] returns its slot.
    Run,
    /// It waits until a [`Slots::release`] passes it a slot, or leaves by [`Slots::cancel`].
    Queue,
}

/// Whether a freed slot went to the command that waited longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    RunQueued,
    Idle,
}

/// The sandbox runs as many commands of a kind as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.why(), self.limit())]
pub struct TooManyExecutions {
    pub kind: SlotKind,
    pub running: u32,
    pub queued: u32,
    pub limit: u32,
    pub queue_limit: u32,
}

impl TooManyExecutions {
    /// The message without the limit.
    pub fn why(&self) -> String {
        let Self { kind, running, queued, queue_limit, .. } = self;
        match queue_limit {
            0 => format!("{running} {kind} are running in the sandbox; wait until one has ended"),
            _ => format!(
                "{running} {kind} are running in the sandbox, and {queued} of at most {queue_limit} wait \
                 (limits.execution_queue); wait until one has ended"
            ),
        }
    }

    /// The limit for the error's body.
    pub fn limit(&self) -> ReachedLimit {
        ReachedLimit::set_by_operator(self.limit.into(), self.kind.counts(), self.kind.key())
    }
}

impl Slots {
    /// Slots of which none is taken.
    pub fn new(kind: SlotKind, limit: u32, queue_limit: u32) -> Self {
        Self { kind, limit, queue_limit, running: 0, queued: 0 }
    }

    /// Commands that hold a slot.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Commands that wait for a slot.
    pub fn queued(&self) -> u32 {
        self.queued
    }

    /// Whether one more command would run or wait.
    pub fn check(&self) -> Result<(), TooManyExecutions> {
        Self { ..*self }.acquire().map(drop)
    }

    /// Requests a slot. A new command never overtakes one that waits.
    pub fn acquire(&mut self) -> Result<Slot, TooManyExecutions> {
        if self.running < self.limit && self.queued == 0 {
            self.running += 1;
            Ok(Slot::Run)
        } else if self.queued < self.queue_limit {
            self.queued += 1;
            Ok(Slot::Queue)
        } else {
            let Self { kind, limit, queue_limit, running, queued } = *self;
            Err(TooManyExecutions { kind, running, queued, limit, queue_limit })
        }
    }

    /// Counts a command that an earlier daemon started, even past the limit.
    pub fn adopt(&mut self) {
        self.running = self.running.saturating_add(1);
    }

    /// A running command ended.
    pub fn release(&mut self) -> Next {
        if self.queued > 0 && self.running <= self.limit {
            self.queued -= 1;
            return Next::RunQueued;
        }
        self.running = self.running.saturating_sub(1);
        Next::Idle
    }

    /// A waiting command was withdrawn.
    pub fn cancel(&mut self) {
        self.queued = self.queued.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
