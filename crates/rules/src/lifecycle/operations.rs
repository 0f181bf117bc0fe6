//! The state table: what an operation does in each state, or why it is refused.
//!
//! The sandbox's actor calls [`decide`] before it acts. A refusal changes nothing. Each pair of state and operation has exactly one
//! row; the table has no wildcard, so that a new state or operation does not compile until it has its rows.

use api::SandboxState;

/// Whether an operation may resume a paused sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AutoResume {
    Allowed,
    /// The request or the port does not allow it.
    Forbidden,
    /// The sandbox was created with `autoResume: false`.
    Disabled,
}

impl From<bool> for AutoResume {
    /// From the request field `autoResume`.
    fn from(auto_resume: bool) -> Self {
        if auto_resume { Self::Allowed } else { Self::Forbidden }
    }
}

/// What a caller requests of a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Get,
    Execute {
        auto_resume: AutoResume,
    },
    Files {
        auto_resume: AutoResume,
    },
    Ports {
        auto_resume: AutoResume,
    },
    /// Attach to a running execution: read its output, write its input, signal it, end it.
    Attach {
        auto_resume: AutoResume,
    },
    Pause,
    /// Pause it, if it runs, and store its processes on the disk.
    Hibernate,
    Resume,
    Terminate,
    /// Change its network policy, paused or not.
    Network,
    /// Change its timeout, paused or not.
    Timeout,
    /// Copy its disk, paused or not: for a snapshot or a fork.
    Snapshot,
    /// Replace its disk, paused or not. It runs afterwards.
    Rollback,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Execute { .. } => "run a command in",
            Self::Files { .. } => "access files of",
            Self::Ports { .. } => "access ports of",
            Self::Attach { .. } => "access an execution of",
            Self::Pause => "pause",
            Self::Hibernate => "hibernate",
            Self::Resume => "resume",
            Self::Terminate => "terminate",
            Self::Network => "change the network of",
            Self::Timeout => "change the timeout of",
            Self::Snapshot => "take a snapshot of",
            Self::Rollback => "roll back",
        }
    }

    /// The same operation in a sandbox that only a resume may resume.
    #[must_use]
    pub fn without_auto_resume(self) -> Self {
        let auto_resume = AutoResume::Disabled;
        match self {
            Self::Execute { .. } => Self::Execute { auto_resume },
            Self::Files { .. } => Self::Files { auto_resume },
            Self::Ports { .. } => Self::Ports { auto_resume },
            Self::Attach { .. } => Self::Attach { auto_resume },
            Self::Get
            | Self::Pause
            | Self::Hibernate
            | Self::Resume
            | Self::Terminate
            | Self::Network
            | Self::Timeout
            | Self::Snapshot
            | Self::Rollback => self,
        }
    }

    /// The states that allow the operation.
    pub fn allowed_in(self) -> &'static [SandboxState] {
        use SandboxState::{Creating, Paused, Running};
        match self {
            Self::Get | Self::Terminate => &[Creating, Running, Paused],
            Self::Execute { auto_resume }
            | Self::Files { auto_resume }
            | Self::Ports { auto_resume }
            | Self::Attach { auto_resume } => match auto_resume {
                AutoResume::Allowed => &[Running, Paused],
                AutoResume::Forbidden | AutoResume::Disabled => &[Running],
            },
            Self::Hibernate | Self::Network | Self::Timeout | Self::Snapshot | Self::Rollback => {
                &[Running, Paused]
            }
            Self::Pause => &[Running],
            Self::Resume => &[Paused],
        }
    }
}

/// What the actor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LifecycleStep {
    /// Nothing but respond.
    Nothing,
    Pause,
    Hibernate,
    Resume,
    ResumeThenRun,
    Run,
    Terminate,
    ChangeNetwork,
    ChangeTimeout,
    CopyDisk,
    ReplaceDisk,
}

/// Why an operation is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationRefusal {
    /// To clients a terminated sandbox does not exist.
    #[error("the sandbox was terminated")]
    NotFound,
    #[error(
        "cannot {} a sandbox that is {state}; it must be {}{}",
        operation.name(),
        one_of(allowed),
        remedy(*state, *operation)
    )]
    InvalidState { state: SandboxState, operation: Operation, allowed: &'static [SandboxState] },
}

/// The table.
pub fn decide(state: SandboxState, operation: Operation) -> Result<LifecycleStep, OperationRefusal> {
    use SandboxState::{Creating, Paused, Running, Terminated};
    let invalid = || OperationRefusal::InvalidState { state, operation, allowed: operation.allowed_in() };
    match (state, operation) {
        (Terminated, _) => Err(OperationRefusal::NotFound),
        (Creating | Running | Paused, Operation::Get) => Ok(LifecycleStep::Nothing),
        (Creating | Running | Paused, Operation::Terminate) => Ok(LifecycleStep::Terminate),
        (Running, Operation::Pause) => Ok(LifecycleStep::Pause),
        (Creating | Paused, Operation::Pause) => Err(invalid()),
        (Running | Paused, Operation::Hibernate) => Ok(LifecycleStep::Hibernate),
        (Paused, Operation::Resume) => Ok(LifecycleStep::Resume),
        (Creating | Running, Operation::Resume) => Err(invalid()),
        (Running | Paused, Operation::Network) => Ok(LifecycleStep::ChangeNetwork),
        (Running | Paused, Operation::Timeout) => Ok(LifecycleStep::ChangeTimeout),
        (Running | Paused, Operation::Snapshot) => Ok(LifecycleStep::CopyDisk),
        (Running | Paused, Operation::Rollback) => Ok(LifecycleStep::ReplaceDisk),
        (
            Creating,
            Operation::Hibernate
            | Operation::Network
            | Operation::Timeout
            | Operation::Snapshot
            | Operation::Rollback,
        ) => Err(invalid()),
        (
            Creating,
            Operation::Execute { .. }
            | Operation::Files { .. }
            | Operation::Ports { .. }
            | Operation::Attach { .. },
        ) => Err(invalid()),
        (
            Running,
            Operation::Execute { .. }
            | Operation::Files { .. }
            | Operation::Ports { .. }
            | Operation::Attach { .. },
        ) => Ok(LifecycleStep::Run),
        (
            Paused,
            Operation::Execute { auto_resume }
            | Operation::Files { auto_resume }
            | Operation::Ports { auto_resume }
            | Operation::Attach { auto_resume },
        ) => match auto_resume {
            AutoResume::Allowed => Ok(LifecycleStep::ResumeThenRun),
            AutoResume::Forbidden | AutoResume::Disabled => Err(invalid()),
        },
    }
}

fn one_of(states: &[SandboxState]) -> String {
    states.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

fn remedy(state: SandboxState, operation: Operation) -> &'static str {
    match (state, operation) {
        (SandboxState::Creating, _) => "; wait until it is running",
        (
            SandboxState::Paused,
            Operation::Execute { auto_resume }
            | Operation::Files { auto_resume }
            | Operation::Ports { auto_resume }
            | Operation::Attach { auto_resume },
        ) => match auto_resume {
            AutoResume::Disabled => "; resume it first: it was created with 'autoResume' false",
            AutoResume::Allowed | AutoResume::Forbidden => "; resume it first, or omit 'autoResume'",
        },
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SandboxState::{Creating, Paused, Running, Terminated};

    const STATES: [SandboxState; 4] = [Creating, Running, Paused, Terminated];

    fn operations() -> Vec<Operation> {
        let mut all = vec![
            Operation::Get,
            Operation::Pause,
            Operation::Hibernate,
            Operation::Resume,
            Operation::Terminate,
            Operation::Network,
            Operation::Timeout,
            Operation::Snapshot,
            Operation::Rollback,
        ];
        for auto_resume in [AutoResume::Allowed, AutoResume::Forbidden, AutoResume::Disabled] {
            all.push(Operation::Execute { auto_resume });
            all.push(Operation::Files { auto_resume });
            all.push(Operation::Ports { auto_resume });
            all.push(Operation::Attach { auto_resume });
        }
        all
    }

    #[test]
    fn the_whole_table() {
        let wake = AutoResume::Allowed;
        let stay = AutoResume::Forbidden;
        let off = AutoResume::Disabled;
        // One letter a state, in the order of STATES: what is done, `x` invalid state, `-` not found.
        let rows = [
            (Operation::Get, "nnn-"),
            (Operation::Pause, "xpx-"),
            (Operation::Hibernate, "xhh-"),
            (Operation::Resume, "xxr-"),
            (Operation::Terminate, "ttt-"),
            (Operation::Network, "xNN-"),
            (Operation::Timeout, "xTT-"),
            (Operation::Snapshot, "xCC-"),
            (Operation::Rollback, "xBB-"),
            (Operation::Execute { auto_resume: wake }, "xRw-"),
            (Operation::Execute { auto_resume: stay }, "xRx-"),
            (Operation::Execute { auto_resume: off }, "xRx-"),
            (Operation::Files { auto_resume: wake }, "xRw-"),
            (Operation::Files { auto_resume: stay }, "xRx-"),
            (Operation::Files { auto_resume: off }, "xRx-"),
            (Operation::Ports { auto_resume: wake }, "xRw-"),
            (Operation::Ports { auto_resume: stay }, "xRx-"),
            (Operation::Ports { auto_resume: off }, "xRx-"),
            (Operation::Attach { auto_resume: wake }, "xRw-"),
            (Operation::Attach { auto_resume: stay }, "xRx-"),
            (Operation::Attach { auto_resume: off }, "xRx-"),
        ];
        assert_eq!(rows.len(), operations().len());
        for (operation, letters) in rows {
            for (state, letter) in STATES.into_iter().zip(letters.chars()) {
                let decided = match decide(state, operation) {
                    Ok(LifecycleStep::Nothing) => 'n',
                    Ok(LifecycleStep::Pause) => 'p',
                    Ok(LifecycleStep::Hibernate) => 'h',
                    Ok(LifecycleStep::Resume) => 'r',
                    Ok(LifecycleStep::ResumeThenRun) => 'w',
                    Ok(LifecycleStep::Run) => 'R',
                    Ok(LifecycleStep::Terminate) => 't',
                    Ok(LifecycleStep::ChangeNetwork) => 'N',
                    Ok(LifecycleStep::ChangeTimeout) => 'T',
                    Ok(LifecycleStep::CopyDisk) => 'C',
                    Ok(LifecycleStep::ReplaceDisk) => 'B',
                    Err(OperationRefusal::InvalidState { .. }) => 'x',
                    Err(OperationRefusal::NotFound) => '-',
                };
                assert_eq!(decided, letter, "{operation:?} in {state}");
            }
        }
    }

    #[test]
    fn the_refusal_lists_exactly_the_allowed_states() {
        for operation in operations() {
            for state in STATES {
                assert_eq!(decide(state, operation).is_ok(), operation.allowed_in().contains(&state));
            }
        }
    }

    #[test]
    fn a_refusal_says_what_is_needed() {
        let say = |state, operation| decide(state, operation).unwrap_err().to_string();
        assert_eq!(
            say(Paused, Operation::Pause),
            "cannot pause a sandbox that is paused; it must be running"
        );
        assert_eq!(
            say(Paused, Operation::Execute { auto_resume: AutoResume::from(false) }),
            "cannot run a command in a sandbox that is paused; it must be running; resume it first, or omit 'autoResume'"
        );
        assert_eq!(
            say(Creating, Operation::Execute { auto_resume: AutoResume::from(true) }),
            "cannot run a command in a sandbox that is creating; it must be running or paused; wait until it is running"
        );
        assert_eq!(say(Terminated, Operation::Get), "the sandbox was terminated");
        assert_eq!(
            say(Paused, Operation::Files { auto_resume: AutoResume::Allowed }.without_auto_resume()),
            "cannot access files of a sandbox that is paused; it must be running; resume it first: it was created with 'autoResume' false"
        );
    }

    #[test]
    fn only_operations_that_may_resume_can_be_kept_from_it() {
        for operation in operations() {
            let kept = operation.without_auto_resume();
            let resumes = |operation| decide(Paused, operation) == Ok(LifecycleStep::ResumeThenRun);
            assert!(!resumes(kept));
            assert_eq!(decide(Running, kept), decide(Running, operation));
            if !resumes(operation) {
                assert_eq!(decide(Paused, kept).is_ok(), decide(Paused, operation).is_ok());
            }
        }
    }
}
