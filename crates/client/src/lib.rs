//! A client for `sandboxd`, a service that provides isolated Linux sandboxes.
//!
//! ```
//! # sandboxd::testing::with_client(async |client| {
//! // Outside of this example: let client = sandboxd_client::Client::from_env()?;
//! let sandbox = client.create("ubuntu:24.04").env("NAME", "world").await?;
//! let result = sandbox.execute("echo hello $NAME").await?;
//! assert_eq!(result.stdout, "hello world\n");
//! sandbox.terminate().await?;
//! # Ok(()) });
//! ```
//!
//! - [`Client`] sends requests to a service with an API key; [`Client::from_env`] takes both from the environment or from the
//!   local daemon.
//! - [`Sandbox`] is a handle: [`execute`](Sandbox::execute) commands, buffered or as a [stream](Execute::stream);
//!   [`pause`](Sandbox::pause), [`resume`](Sandbox::resume), [`terminate`](Sandbox::terminate).
//! - [`detached`](Execute::detached) commands and [`terminal`](Sandbox::terminal)s run without a connection. Attach to them at
//!   any time, also after a restart of the service.
//! - [`run_code`](Sandbox::run_code) runs code in a context that keeps its state, and returns rich results.
//! - [`expose`](Sandbox::expose) makes a port of a sandbox reachable at a URL.
//! - Every call returns [`Error`] on failure; its [`Code`] has one variant per error of the service.
//! - Requests that are safe to repeat are retried twice with exponential backoff. Creates and buffered commands carry an
//!   `Idempotency-Key`, so a retry after a lost response does not repeat them, unless the daemon was killed during the command.
//! - [`Sandbox::files`] reads, writes and moves files of any size, and directories.
//! - [`Client::build_template`] builds an image from a Dockerfile, and [`Client::template_log`] follows the build.
//! - [`Client::images`] lists images, with the progress of pulls.
//! - [`Client::info`] returns the isolation backends and the limits, [`Client::usage`] the use of the quotas.
//! - [`Client::events`] and [`Sandbox::events`] list events or follow them without gaps.
//! - A [`Run`] records what a program and its sandboxes do as one stream of [`RuntimeEvent`]s.

/// A builder whose `.await` calls its method `send`.
macro_rules! awaited {
    ($($name:ident -> $output:ty;)+) => {
        $(impl std::future::IntoFuture for $name {
            type Output = crate::Result<$output>;
            type IntoFuture = futures_util::future::BoxFuture<'static, Self::Output>;

            fn into_future(self) -> Self::IntoFuture {
                Box::pin(self.send())
            }
        })+
    };
}

#[cfg(test)]
mod cases;
mod client;
mod error;
mod events;
mod execution;
mod files;
mod ids;
mod millis;
mod pager;
mod run;
mod sandbox;
mod settings;
pub mod snapshots;
pub mod sse;
mod templates;
mod transport;

pub use api::{
    BackendView, BadSandboxId, BuildContext, BuildStep, CodeContext, CodeDone, CodeException, CodeExecution,
    CodeResult, CreateBody, Done, EgressDefault, EgressPolicy, EndReason, EventId, EventKind, EventList,
    ExecuteBody, ExecutionId, ExecutionOutput, ExecutionResult, ExecutionState, ExecutionView, FileChange,
    FileChangeKind, FileEntry, FileList, FileType, Health, ImageStatus, ImageView, InfoView, IngressPolicy,
    Isolation, IsolationChoice, LimitsView, NAME_KEY, NetworkPolicy, NetworkView, OnTimeout, OutputEncoding,
    Pagination, PauseResult, Port, PortClosed, PortToken, PortVisibility, PullProgress, PullStage, QuotaView,
    RangeView, ResourceSample, Resources, ResumeResult, RuntimeEvent, SandboxId, SandboxItem, SandboxList,
    SandboxName, SandboxState, SandboxView, SnapshotDeleted, SnapshotId, SnapshotList, SnapshotState,
    SnapshotStorage, SnapshotView, TemplateDeleted, TemplateError, TemplateId, TemplateList, TemplateState,
    TemplateSteps, TemplateView, TerminalSize, Timestamp, Unpacked, UsageView,
};

pub use client::Client;
pub use error::{Code, Error, Result};
pub use events::{EventStream, Events};
pub use execution::code::{CodeOutput, RunCode};
pub use execution::detached::Detached;
pub use execution::execute::Execute;
pub use execution::reattach::Following;
pub use execution::stream::{Output, OutputBytes, OutputStream};
pub use execution::terminal::{Keyboard, OpenTerminal, Terminal, TerminalEvent};
pub use files::{
    Delete, FileBody, FileListing, FileStream, FileWatch, Files, ListFiles, MakeDirectory, Move, Pack, Read,
    Unpack, UploadRecord, WatchEvent, Write,
};
pub use pager::item_stream::ItemStream;
pub use run::{LlmCost, Run};
pub use sandbox::Sandbox;
pub use sandbox::create::Create;
pub use sandbox::guard::Guard;
pub use sandbox::lifecycle::{Failed, LifecycleEvent, Paused, Resumed, Started, Terminated};
pub use sandbox::list::{List, Listing};
pub use sandbox::ports::{Expose, TokenFor};
pub use settings::ClientBuilder;
pub use snapshots::{Fork, Snapshots, TakeSnapshot};
pub use templates::{BuildLog, BuildOutput, BuildTemplate, Templates};
pub use transport::fingerprint::{BadFingerprint, Fingerprint};
