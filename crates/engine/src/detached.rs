//! Commands that outlive the request which started them, and terminals: their records and output on disk, who reads them, and
//! what is sent to them. The engine's own methods for them are in `engine::detached`.

mod attach;
mod reader;
mod types;

pub use attach::{Attachment, Input};
pub use reader::{Followed, OutputReader};
pub use types::{
    BadExecutionId, DetachedRequest, ExecutionId, ExecutionState, ExecutionStatus, TerminalSize,
};
