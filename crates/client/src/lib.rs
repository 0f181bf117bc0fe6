//! The companion library of `sandboxd`: isolated Linux machines from Rust.
//!
//! ```
//! # sandboxd::testing::run(async |service| {
//! # let client = sandboxd_client::Client::builder().url(service.url()).key(service.key()).build()?;
//! // Outside of this example: let client = sandboxd_client::Client::from_env()?;
//! let sandbox = client.create("ubuntu:24.04").env("NAME", "world").await?;
//! let result = sandbox.execute("echo hello $NAME").await?;
//! assert_eq!(result.stdout, "hello world\n");
//! sandbox.terminate().await?;
//! # Ok(()) });
//! ```
//!
//! - [`Client`] is one key's view of a service; [`Client::from_env`] finds both in the environment, or the daemon of this machine.
//! - [`Sandbox`] is a handle: [`execute`](Sandbox::execute) a command, as one answer or as a [stream](Execute::stream);
//!   [`pause`](Sandbox::pause), [`resume`](Sandbox::resume), [`terminate`](Sandbox::terminate).
//! - [`detached`](Execute::detached) commands go on by themselves, and a [`terminal`](Sandbox::terminal) too: come back to them
//!   whenever, also after the service was restarted.
//! - [`expose`](Sandbox::expose) a port of a sandbox, and reach what listens there at a URL of its own.
//! - Every call fails with an [`Error`], whose [`Code`] has one variant for each error of the service.
//! - What may be tried again safely is, twice, with a growing wait. A create or a buffered command carries an
//!   `Idempotency-Key`, so that a try whose answer was lost does nothing twice.
//! - [`Sandbox::files`] reads, writes and moves files of any size, and whole directories.
//! - [`Client::images`] says what is on the server, and how far it is with what it fetches.
//! - [`Client::events`] and [`Sandbox::events`] list what the service tells, or follow it without a gap.
//! - A [`Run`] notes what happens, as one stream of [`RuntimeEvent`]s.

mod client;
mod connect;
mod create;
mod detached;
mod error;
mod events;
mod execute;
mod files;
mod follow;
mod guard;
mod happenings;
mod ids;
mod images;
mod list;
mod millis;
mod notes;
mod payload;
mod ports;
mod reattach;
mod retry;
mod run;
mod sandbox;
mod settings;
pub mod sse;
mod stream;
mod terminal;
mod transport;
mod trust;
mod websocket;

pub use api::{
    BadSandboxId, CreateBody, Done, EgressDefault, EgressPolicy, EventId, EventKind, EventList, ExecuteBody,
    ExecutionId, ExecutionOutput, ExecutionResult, ExecutionState, ExecutionView, FileEntry, FileList,
    FileType, Health, ImageStatus, ImageView, IngressPolicy, NetworkPolicy, Pagination, PauseResult, Port,
    PortClosed, PortToken, PortVisibility, PullProgress, PullStage, Resources, ResumeResult, RuntimeEvent,
    SandboxId, SandboxItem, SandboxList, SandboxState, SandboxView, TerminalSize, Timestamp, Unpacked,
};

pub use client::Client;
pub use create::Create;
pub use detached::Detached;
pub use error::{Code, Error, Result};
pub use events::{EventStream, Events};
pub use execute::Execute;
pub use files::{
    Delete, FileBody, FileListing, FileStream, Files, ListFiles, MakeDirectory, Move, Pack, Read, Unpack,
    Write,
};
pub use guard::Guard;
pub use happenings::{Failed, Happening, Paused, Resumed, Started, Terminated};
pub use list::{List, Listing};
pub use ports::{Expose, TokenFor};
pub use reattach::Following;
pub use run::{LlmCost, Run};
pub use sandbox::Sandbox;
pub use settings::ClientBuilder;
pub use stream::{Output, OutputStream};
pub use terminal::{Keyboard, OpenTerminal, Shown, Terminal};
pub use trust::{BadFingerprint, Fingerprint};
