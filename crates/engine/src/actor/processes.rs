//! The processes of a sandbox as its actor knows them, with the link to their agent.
//!
//! They follow from the lifecycle in the record. They differ from it only while a change is carried out, or after one that could not be
//! committed or undone.

use rules::{Lifecycle, ProcessState};

use crate::link::Agent;

/// Where the processes are. Only those in memory have a link.
pub(super) enum LinkedProcesses {
    /// Without an agent the link is broken; the next request opens another one.
    Running(Option<Agent>),
    Frozen(Option<Agent>),
    Stored,
    Ended,
}

impl LinkedProcesses {
    pub fn of(lifecycle: &Lifecycle, agent: Option<Agent>) -> Self {
        match lifecycle.process_state() {
            ProcessState::Running => Self::Running(agent),
            ProcessState::Frozen => Self::Frozen(agent),
            ProcessState::Stored => Self::Stored,
            ProcessState::Ended => Self::Ended,
        }
    }

    pub fn state(&self) -> ProcessState {
        match self {
            Self::Running(_) => ProcessState::Running,
            Self::Frozen(_) => ProcessState::Frozen,
            Self::Stored => ProcessState::Stored,
            Self::Ended => ProcessState::Ended,
        }
    }

    /// Whether the sandbox has processes, and with them a network.
    pub fn are_in_memory(&self) -> bool {
        matches!(self, Self::Running(_) | Self::Frozen(_))
    }

    /// The link, open or not.
    pub fn link(&self) -> Option<&Agent> {
        match self {
            Self::Running(agent) | Self::Frozen(agent) => agent.as_ref(),
            Self::Stored | Self::Ended => None,
        }
    }

    /// The link to an agent that runs and answers.
    pub fn open_link(&self) -> Option<&Agent> {
        match self {
            Self::Running(agent) => agent.as_ref().filter(|agent| !agent.is_closed()),
            Self::Frozen(_) | Self::Stored | Self::Ended => None,
        }
    }

    /// Replaces the link. Without processes in memory there is none.
    pub fn set_link(&mut self, link: Option<Agent>) {
        if let Self::Running(agent) | Self::Frozen(agent) = self {
            *agent = link;
        }
    }

    /// The processes that ran are frozen.
    pub fn freeze(&mut self) {
        if let Self::Running(agent) = self {
            *self = Self::Frozen(agent.take());
        }
    }
}
