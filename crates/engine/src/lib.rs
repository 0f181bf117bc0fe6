//! The engine: creates, runs, pauses, recovers and removes sandboxes.
//!
//! [`Engine`] opens the engine and creates sandboxes; [`SandboxHandle`] has the operations on one sandbox. Each sandbox has an actor,
//! the only task that changes it. Callers send requests to the actor and watch the status that it publishes. A record is committed
//! before a caller sees its content. Each start of the engine recovers the sandboxes of the previous daemon.
//!
//! The modules, each of which uses only those above it:
//!
//! | Module | What it has |
//! |---|---|
//! | `counters`, `tasks` | what is counted for metrics; the tasks of the engine |
//! | `template` | what a sandbox begins with |
//! | `link` | the connection to the agent of a sandbox |
//! | `error` | the errors, by the part of the engine that they belong to |
//! | `record` | stored and published records, events, ids and the clock |
//! | `host` | the isolation backend and the network, used together |
//! | `registry` | the sandboxes that have an actor: their names, and how an actor is asked |
//! | `work` | commands and file operations in a sandbox |
//! | `detached` | commands and processes that outlive their request |
//! | `capacity` | what the host has for sandboxes: the ledger, provisioned sandboxes, the warm pool |
//! | `snapshots` | taking, finding, sweeping and deleting snapshots |
//! | `actor` | the task that changes a sandbox |
//! | `background` | the tasks that look after the host and after what has expired |
//! | `services` | how all these are wired, and the settings |
//! | `create`, `object_store` | creates and forks; copies of snapshots and sandboxes elsewhere |
//! | `sandbox`, `engine` | what callers see |

mod actor;
mod background;
mod capacity;
mod counters;
mod create;
mod detached;
mod engine;
mod error;
mod host;
mod link;
mod object_store;
mod record;
mod registry;
mod sandbox;
mod services;
mod snapshots;
mod tasks;
mod template;
mod work;

pub use background::resource_samples::ResourceSample;
pub use capacity::host_watch::{DiskState, HostSample, HostWatch};
pub use capacity::provision::warm_pool::{PoolKey, PoolState, PoolTarget};
pub use counters::Counts;
pub use counters::latency::{LATENCY_BOUNDS_US, LatencyCounts, LatencySnapshot};
pub use detached::process::{
    MAX_ARG_BYTES, MAX_PROCESS_BYTES, Process, ProcessEnd, ProcessEvent, ProcessRequest, ProcessSelector,
    ProcessStatus,
};
pub use detached::{
    Attachment, DetachedRequest, DetachedSettings, ExecutionId, ExecutionState, ExecutionStatus, Input,
    OutputEvent, OutputReader, ProcessArgs,
};
pub use driver::SnapshotScope;
pub use engine::Engine;
pub use engine::metrics::{MetricsSnapshot, SandboxCounts};
pub use engine::recover::Recovered;
pub use error::{
    AgentError, CapacityError, DaemonError, EngineError, ErrorClass, ExecutionEnd, ExecutionError, FileError,
    HibernationError, HostError, ProcessError, ProcessRefusal, Retry, SandboxError, SnapshotError, Source,
};
pub use guest_proto::{
    Channel, Exit, FileErrorKind, FileKind, MAX_DIALS, MAX_FILE_OPS, MAX_WATCHES, RefusalKind,
    Tally as FileTally, TerminalSize, WatchEventKind,
};
pub use link::{LinkError, Tunnel};
pub use record::clock::Clock;
pub use record::expiry_warnings::{ExpiryWarning, ExpiryWarnings};
pub use record::exposure::Exposure;
pub use record::idempotency::{BuildResponse, PendingIdempotencyRecord};
pub use record::interruptions::WorkInProgress;
pub use record::status::{PauseResult, ResumeResult, Status, TerminateResult};
pub use registry::mailbox::{Admission, Permit, Processes, TimeoutChange};
pub use sandbox::SandboxHandle;
pub use sandbox::external_execution::ExternalExecution;
pub use services::Parts;
pub use services::settings::EngineSettings;
pub use snapshots::take::PendingSnapshot;
pub use snapshots::{SnapshotCopies, SnapshotUsage};
pub use template::hold::SnapshotHold;
pub use template::{FindImage, ImageHold, Template};
pub use work::execution::{Execution, ExecutionEvent, Finished};
pub use work::files::content::FileContent;
pub use work::files::info::{FileInfo, FileRange};
pub use work::files::user_files::{FileAttributes, PathDetails, ResolvedLink, UserFileOp};
pub use work::files::watch::{Watch, WatchEvent};
pub use work::files::{DirectoryPage, FileOp, FileOperation, FileResponse, TreeEntries};
