//! The engine: creates, runs, pauses, recovers and removes sandboxes.
//!
//! [`Engine`] opens the engine and creates sandboxes; [`SandboxHandle`] has the operations on one sandbox. Each sandbox has an actor,
//! the only task that changes it. Callers send requests to the actor and watch the status that it publishes. A record is committed
//! before a caller sees its content. Each start of the engine recovers the sandboxes of the previous daemon.

mod actor;
mod agent_timeout;
mod clock;
mod code;
mod counters;
mod create;
mod deadline;
mod delete_snapshot;
mod detached;
mod detached_status;
mod engine;
mod error;
mod events;
mod execution;
mod expiry_warnings;
mod file_content;
mod file_info;
mod files;
mod fork;
mod hoarders;
mod host;
mod host_watch;
mod interruptions;
mod latency;
mod ledger;
mod link;
mod link_error;
mod mailbox;
mod memory_watch;
mod metrics;
mod names;
mod network_refusals;
mod object_store;
mod ports;
mod pressure;
mod process;
mod process_refusal;
mod provision;
mod provisioned_sandbox;
mod purge;
mod recover;
mod registry;
mod resource_samples;
mod run_as;
mod sandbox;
mod services;
mod settings;
mod snapshot_hold;
mod snapshots;
mod stamped_store;
mod status;
mod steps;
mod take_snapshot;
mod tasks;
mod timer;
mod user_files;
mod warm_pool;
mod warm_pool_refill;
mod watch;

pub use clock::Clock;
pub use code::{CodeConnection, CodeRun};
pub use counters::Counts;
pub use create::{BuildResponse, PendingIdempotencyRecord};
pub use detached::{
    Attachment, DetachedRequest, ExecutionId, ExecutionState, ExecutionStatus, Input, OutputEvent,
    OutputReader, ProcessArgs,
};
pub use engine::Engine;
pub use error::{EngineError, FileError, Source, chain_text};
pub use execution::{Execution, ExecutionEvent, Finished};
pub use expiry_warnings::{ExpiryWarning, ExpiryWarnings};
pub use file_content::FileContent;
pub use file_info::{FileInfo, FileRange};
pub use files::{DirectoryPage, FileOp, FileOperation, FileResponse, TreeEntries};
pub use guest_proto::{
    Channel, FileErrorKind, FileKind, MAX_DIALS, MAX_FILE_OPS, MAX_WATCHES, RefusalKind, Tally as FileTally,
    TerminalSize, WatchEventKind,
};
pub use host_watch::{DiskState, HostSample, HostWatch};
pub use interruptions::WorkInProgress;
pub use latency::{LATENCY_BOUNDS_US, LatencyCounts, LatencySnapshot};
pub use link::Tunnel;
pub use mailbox::{Permit, Processes, TimeoutChange};
pub use metrics::{MetricsSnapshot, SandboxCounts};
pub use ports::Exposure;
pub use process::{
    MAX_ARG_BYTES, MAX_PROCESS_BYTES, Process, ProcessEnd, ProcessEvent, ProcessRequest, ProcessSelector,
    ProcessStatus,
};
pub use process_refusal::ProcessRefusal;
pub use recover::Recovered;
pub use resource_samples::ResourceSample;
pub use sandbox::SandboxHandle;
pub use services::Parts;
pub use settings::{
    DetachedSettings, EngineSettings, FindImage, ImageHold, PoolKey, PoolTarget, SnapshotCopies, Template,
};
pub use snapshot_hold::SnapshotHold;
pub use snapshots::SnapshotUsage;
pub use status::{PauseResult, ResumeResult, Status, TerminateResult};
pub use take_snapshot::PendingSnapshot;
pub use user_files::{FileAttributes, PathDetails, ResolvedLink, UserFileOp};
pub use warm_pool::PoolState;
pub use watch::{Watch, WatchEvent};
