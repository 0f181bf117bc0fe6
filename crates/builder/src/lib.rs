//! Builds templates: images of an account that a Dockerfile describes.
//!
//! ```text
//! Builder::create --record--> queue --> build: base, plan, then for each step:
//!     a sandbox above the snapshot of the step before --> its files and its command --> snapshot --> terminated
//! ```
//!
//! Each step is identified by a key of what it does, of the files that it copies, and of the step before (`build/keys.rs`). A build begins
//! with the last step that has a snapshot, so steps run once as long as a template needs their snapshots. A daemon that starts
//! continues the builds of the one before at that step too. A snapshot that no template of its account needs is deleted.
//!
//! Used by the server. The steps run in sandboxes of the account, with its quotas and the network policy of the request.

mod build;
mod builder;
mod context;
mod copy;
mod error;
mod interruptible;
mod log;
mod registry;
mod template;

pub use build::bases::{Base, Bases};
pub use builder::counters::BuildCounts;
pub use builder::{Builder, BuilderSettings};
pub use context::incoming::Incoming;
pub use context::spool::{LARGEST_PER_ACCOUNT, StoredContext};
pub use error::{BuildError, BuilderError};
pub use log::{LogEvent, LogReader};
pub use template::{DEFAULT_TAG, NewTemplate, OtherBuilds, PendingTemplate, StartCommand, Template};
