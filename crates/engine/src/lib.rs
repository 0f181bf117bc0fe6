//! The living sandboxes.
//!
//! [`Engine`] is all that the layers above see. Each sandbox has one task, its actor, that alone changes its state; callers
//! send it requests and watch its numbered status. A record is committed before anybody hears of what it says, and what is
//! found on the host after the death of a daemon is brought to agree with the records, so a start is a recovery.

mod actor;
mod agent_connect;
mod agent_timeout;
mod clock;
mod counters;
mod create;
mod deadline;
mod detached;
mod engine;
mod error;
mod events;
mod eviction;
mod execution;
mod files;
mod ledger;
mod link;
mod mailbox;
mod metrics;
mod network;
mod network_refusals;
mod ports;
mod purge;
mod recover;
mod sandbox;
mod settings;
mod shared;
mod status;
mod timer;
mod warm_pool;

pub use clock::Clock;
pub use counters::Counts;
pub use create::{BuildResponse, PendingIdempotencyRecord};
pub use detached::status::{DetachedRequest, ExecutionId, ExecutionState, ExecutionStatus};
pub use detached::{Attachment, Input, OutputEvent, OutputReader};
pub use engine::{Engine, Parts};
pub use error::{EngineError, FileError, Source};
pub use execution::{Execution, ExecutionEvent, Finished};
pub use files::{DirectoryPage, FileInfo, FileOp, FileOperation, FileRange, FileResponse};
pub use guest_proto::{Channel, FileErrorKind, FileKind, RefusalKind, Tally as FileTally, TerminalSize};
pub use link::Tunnel;
pub use mailbox::Permit;
pub use metrics::MetricsSnapshot;
pub use ports::Exposure;
pub use recover::Recovered;
pub use sandbox::SandboxHandle;
pub use settings::{DetachedSettings, EngineSettings, PoolTarget, Template};
pub use status::{PauseResult, ResumeResult, Status, TerminateResult};
pub use warm_pool::PoolState;
