//! Why a call of a driver failed, and in which step. The words of a step complete "cannot …"; they are here only.

use std::fmt;
use std::io;
use std::path::PathBuf;

use api::SandboxId;

use crate::Presence;

/// Why a driver call failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The sandbox does not exist, or its state does not allow the call.
    #[error("cannot {action} sandbox {id}: it is {presence:?}")]
    InvalidState { id: SandboxId, presence: Presence, action: &'static str },
    /// The host ran out of a resource such as disk space, loop devices or process ids.
    #[error("the host ran out of {what}: {source}")]
    Exhausted { what: &'static str, source: io::Error },
    /// The backend cannot store the processes as they are. They go on.
    #[error("cannot store the processes: {reason}")]
    NotStorable { reason: String },
    /// Stored processes cannot be continued by this release of the backend.
    #[error("the processes were stored by {stored}, and this host has {present}")]
    OtherRelease { stored: String, present: String },
    /// A step of the call failed.
    #[error("cannot {step}: {source}")]
    Failed { step: DriverStep, source: FailureCause },
}

/// An error of a lower layer, or a message.
type FailureCause = Box<dyn std::error::Error + Send + Sync>;

impl DriverError {
    /// A failed step and its cause, an error or a message.
    pub fn failed(step: DriverStep, source: impl Into<FailureCause>) -> Self {
        Self::Failed { step, source: source.into() }
    }
}

impl From<base::TaskLost> for DriverError {
    fn from(lost: base::TaskLost) -> Self {
        Self::failed(DriverStep::RunStep, lost)
    }
}

/// Names the step that a result is of.
pub trait AtStep<T> {
    /// An error becomes the failure of `step`.
    fn at(self, step: DriverStep) -> Result<T, DriverError>;
}

impl<T, E: Into<FailureCause>> AtStep<T> for Result<T, E> {
    fn at(self, step: DriverStep) -> Result<T, DriverError> {
        self.map_err(|error| DriverError::failed(step, error))
    }
}

/// The steps, each with its words, which are its documentation, too.
macro_rules! steps {
    ($($step:ident => $words:literal,)*) => {
        /// A step of a call.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum DriverStep {
            $(#[doc = $words] $step,)*
            /// Mounts the disk of a snapshot as a layer.
            MountSnapshot(PathBuf),
            /// A step that another program or crate has named, such as the launcher.
            Named(String),
        }

        impl fmt::Display for DriverStep {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$step => f.write_str($words),)*
                    Self::MountSnapshot(layer) => write!(f, "mount the snapshot {}", layer.display()),
                    Self::Named(words) => f.write_str(words),
                }
            }
        }
    };
}

steps! {
    // The driver itself.
    RunStep => "run a step of the driver",
    PrepareDirectories => "prepare the driver's directories",
    RemoveDirectories => "remove the driver's directories",
    // The start of a sandbox.
    StartSandbox => "start the sandbox",
    MakeSandboxDirectory => "make the sandbox's directory",
    RecordStart => "record how the sandbox was started",
    MakeCgroups => "make the sandbox's cgroups",
    Describe => "describe the sandbox",
    MakeCallFilter => "make the filter of system calls",
    StartLauncher => "start the launcher",
    ReachLauncher => "communicate with the launcher",
    WriteBundle => "write the bundle",
    RunRuntime => "run the runtime",
    FindFirstProcess => "find the sandbox's first process",
    LimitConnections => "limit the sandbox's connections",
    ConnectNetwork => "connect the sandbox to the network",
    OpenAgentLink => "open the link to the agent",
    // A sandbox.
    ConnectAgent => "connect to the agent",
    ReadCgroup => "read the sandbox's cgroup",
    Freeze => "freeze the sandbox",
    Thaw => "thaw the sandbox",
    PageOut => "page out the sandbox",
    SetLimits => "set the sandbox's limits",
    ShowLimits => "show the sandbox its limits",
    FindHoarders => "look for memory that is charged to nobody",
    KillProcesses => "kill the sandbox's processes",
    RemoveRuntimeState => "remove the runtime's state",
    RemoveCgroups => "remove the sandbox's cgroups",
    RemoveSandboxDirectory => "remove the sandbox's directory",
    ListSandboxes => "list sandboxes",
    // Its disk.
    MakeDiskDirectory => "make the disk's directory",
    MakeTemplate => "make the disk's template",
    RunMkfs => "run mkfs.ext4 (package e2fsprogs)",
    CopyTemplate => "copy the disk's template",
    CopySnapshotDisk => "copy the disk of the snapshot",
    RunResize => "run resize2fs (package e2fsprogs)",
    SaveDisk => "save the new disk",
    ReplaceDisk => "replace the disk",
    RemoveDisk => "remove the disk",
    LimitDisk => "limit the rates of the disk",
    FindReadOnlyDisks => "look for disks that have become read-only",
    FindDisk => "look for the disk",
    CompareDisks => "compare the disks with what is mounted",
    // Its mounts.
    LeaveMountNamespace => "leave the host's mount namespace",
    MakeIdMap => "make the id map",
    MountDisk => "mount the disk",
    AwaitLastUse => "mount the disk, whose last use has not ended",
    RunE2fsck => "run e2fsck (package e2fsprogs)",
    // A snapshot.
    CopyDisk => "copy the sandbox's disk",
    FinishSnapshot => "finish the snapshot",
    ListSnapshots => "list snapshots",
    ReadSnapshot => "read the files of a snapshot",
    ReceiveSnapshot => "make room for a snapshot",
    RemoveSnapshot => "remove the snapshot",
    // Stored processes.
    ReadStoredProcesses => "read what is stored of the processes",
    PrepareToStore => "prepare to store the processes",
    StoreProcesses => "store the processes",
    CopyProcesses => "copy the processes",
    ContinueProcesses => "continue the processes",
    RemoveStoredProcesses => "remove the stored processes",
    // The trial of `doctor`.
    PrepareTrial => "prepare the trial",
    TryFileSystems => "try the file systems",
    ReadThroughOverlay => "read through the overlay",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_step_and_its_cause() {
        let failed: Result<(), _> = Err(io::Error::other("no space")).at(DriverStep::CopyDisk);
        assert_eq!(failed.unwrap_err().to_string(), "cannot copy the sandbox's disk: no space");
        let failed = DriverError::failed(DriverStep::MountSnapshot("/x/y.img".into()), "busy");
        assert_eq!(failed.to_string(), "cannot mount the snapshot /x/y.img: busy");
    }
}
