//! The living sandboxes.
//!
//! [`Engine`] is all that the layers above see. Each sandbox has one task, its actor, that alone changes its state; callers
//! send it requests and watch its numbered status. A record is committed before anybody hears of what it says, and what is
//! found on the host after the death of a daemon is brought to agree with the records, so a start is a recovery.

mod actor;
mod agent_start;
mod clock;
mod counters;
mod create;
mod deadline;
mod detached;
mod engine;
mod error;
mod events;
mod execution;
mod executions;
mod facts;
mod files;
mod handle;
mod kept;
mod ledger;
mod link;
mod network;
mod patience;
mod pool;
mod ports;
mod purge;
mod recover;
mod refusals;
mod settings;
mod shared;
mod shed;
mod shelves;
mod status;
mod timer;

pub use clock::Clock;
pub use counters::Counts;
pub use create::{Remember, Respond};
pub use detached::{Attachment, Followed, Input, OutputReader};
pub use engine::{Engine, Parts};
pub use error::{EngineError, FileFault};
pub use execution::{Execution, ExecutionEvent, Finished};
pub use executions::{DetachedRequest, ExecutionId, ExecutionState, ExecutionStatus};
pub use facts::Facts;
pub use files::{FileInfo, FileOrder, FileRange, FileWork, Listed, Said};
pub use guest_proto::{Channel, FileErrorKind, FileKind, RefusalKind, Tally as FileTally, TerminalSize};
pub use handle::Permit;
pub use link::{LinkError, Tunnel};
pub use ports::Exposure;
pub use recover::Recovered;
pub use settings::{DetachedSettings, EngineSettings, PoolTarget, Template};
pub use shelves::PoolState;
pub use status::{PauseResult, ResumeResult, Status, TerminateResult};
