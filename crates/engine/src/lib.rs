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
mod detached;
mod detached_status;
mod engine;
mod error;
mod events;
mod execution;
mod files;
mod host;
mod host_watch;
mod ledger;
mod link;
mod link_error;
mod mailbox;
mod metrics;
mod network_refusals;
mod ports;
mod pressure;
mod provision;
mod provisioned_sandbox;
mod purge;
mod recover;
mod registry;
mod sandbox;
mod services;
mod settings;
mod stamped_store;
mod status;
mod tasks;
mod timer;
mod warm_pool;
mod warm_pool_refill;

pub use clock::Clock;
pub use code::{CodeConnection, CodeRun};
pub use counters::Counts;
pub use create::{BuildResponse, PendingIdempotencyRecord};
pub use detached::{
    Attachment, DetachedRequest, ExecutionId, ExecutionState, ExecutionStatus, Input, OutputEvent,
    OutputReader,
};
pub use engine::Engine;
pub use error::{EngineError, FileError, Source};
pub use execution::{Execution, ExecutionEvent, Finished};
pub use files::{DirectoryPage, FileInfo, FileOp, FileOperation, FileRange, FileResponse};
pub use guest_proto::{Channel, FileErrorKind, FileKind, RefusalKind, Tally as FileTally, TerminalSize};
pub use host_watch::{DiskState, HostSample, HostWatch};
pub use link::Tunnel;
pub use mailbox::Permit;
pub use metrics::MetricsSnapshot;
pub use ports::Exposure;
pub use recover::Recovered;
pub use sandbox::SandboxHandle;
pub use services::Parts;
pub use settings::{DetachedSettings, EngineSettings, FindImage, PoolTarget, Template};
pub use status::{PauseResult, ResumeResult, Status, TerminateResult};
pub use warm_pool::PoolState;
