//! The types of the REST API. Names, units and the use of `null` are those of the specification.
//!
//! Used by server, client and engine. No decisions, no clock, no I/O. With the feature `openapi` every type of a body has a
//! schema.

#[macro_use]
mod named;

pub mod bounds;
mod error;
mod events;
mod exec;
mod files;
mod health;
mod ids;
mod images;
mod info;
mod ports;
mod sandbox;
#[cfg(feature = "openapi")]
mod schema;
mod snapshots;
mod templates;
mod time;
mod usage;
pub mod wildcard;

pub use bounds::SIGNALS;
pub use error::{ErrorBody, ErrorCode, ErrorObject, UnknownErrorCode};
pub use events::{
    BadEventId, BadRunId, EventBody, EventId, EventKind, EventList, EventsBody, EventsRecorded, RunId,
    RuntimeEvent, UnknownEventKind,
};
#[cfg(feature = "openapi")]
pub use events::{EventKinds, Moment};
pub use exec::code::{
    CodeBody, CodeContext, CodeContextBody, CodeContextList, CodeContextRemoved, CodeDone, CodeEvent,
    CodeException, CodeExecution, CodeRequest, CodeResult, CodeText,
};
#[cfg(feature = "openapi")]
pub use exec::executions::OutputOffset;
pub use exec::executions::{
    BadExecutionId, ExecutionId, ExecutionList, ExecutionOutput, ExecutionState, ExecutionView, SignalBody,
    StdinWritten, TerminalBody, TerminalControl, TerminalNote, TerminalSize, TerminalWarning,
};
pub use exec::{
    CommandBody, DetachedBody, Done, EndReason, ExecuteBody, ExecuteRequest, ExecutionResult, OutputEncoding,
    StreamEvent,
};
pub use files::{
    FileChange, FileChangeKind, FileDeleted, FileEntry, FileExists, FileList, FileType, Unpacked,
};
pub use health::Health;
pub use ids::{
    ALPHABET, BadBuildContextId, BadSandboxId, BadSnapshotId, BadTemplateId, BuildContextId, SandboxId,
    SnapshotId, TemplateId,
};
pub use images::{ImageList, ImageStatus, ImageView, PullProgress, PullStage};
pub use info::{BackendView, InfoView, LimitsView, RangeView};
pub use ports::{
    ExposeBody, Port, PortClosed, PortList, PortToken, PortVisibility, TokenBody, UnknownVisibility,
};
pub use sandbox::create::{
    CreateBody, CreateEgress, CreateIngress, CreateNetwork, CreateResources, TimeoutBody,
};
pub use sandbox::name::{BadSandboxName, NAME_KEY, SandboxName};
pub use sandbox::pause::{PauseBody, ResumeBody};
pub use sandbox::views::{
    NetworkUsage, NetworkView, Pagination, PauseResult, ResumeResult, SandboxItem, SandboxList, SandboxView,
    TerminateResult, Times,
};
pub use sandbox::{
    EgressDefault, EgressPolicy, IngressPolicy, Isolation, IsolationChoice, NetworkPolicy, OnTimeout,
    ProcessesAtTimeout, Resources, SandboxConfig, SandboxState, UnknownIsolation,
};
pub use snapshots::{
    ForkBody, ForkList, RollbackBody, SnapshotBody, SnapshotDeleted, SnapshotList, SnapshotState,
    SnapshotStorage, SnapshotView,
};
pub use templates::build_log::{BuildEvent, BuildStep};
pub use templates::{
    BuildContext, TemplateBody, TemplateDeleted, TemplateError, TemplateList, TemplateState, TemplateSteps,
    TemplateView,
};
pub use time::{BadTimestamp, Timestamp};
pub use usage::{QuotaView, ResourceMetrics, ResourceSample, UsageView};

/// A whole number in a request body. Wide enough for every integer that JSON libraries read, so that a value out of its range can be
/// named in a message.
pub type Integer = i128;

/// The version of the API: the first segment of every path.
pub const VERSION: &str = "v1";
