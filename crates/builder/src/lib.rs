//! Builds templates: images of an account that a Dockerfile describes.
//!
//! ```text
//! Builder::create --record--> queue --> build: base, plan, then for each step:
//!     a sandbox above the snapshot of the step before --> its files and its command --> snapshot --> terminated
//! ```
//!
//! Each step is identified by a key of what it does, of the files that it copies, and of the step before ([`keys`]). A build begins
//! with the last step that has a snapshot, so steps run once as long as a template needs their snapshots. A daemon that starts
//! continues the builds of the one before at that step too. A snapshot that no template of its account needs is deleted.
//!
//! Used by the server. The steps run in sandboxes of the account, with its quotas and the network policy of the request.

mod archive;
mod build;
mod build_permits;
mod builder;
mod clean_up;
mod context;
mod contexts;
mod copy;
mod counters;
mod error;
mod files;
mod foreign_files;
mod format;
mod incoming;
mod index;
mod interruptible;
mod keyed_steps;
mod keys;
mod last_output;
mod links;
mod log;
mod polls;
mod registry;
mod run;
mod search;
mod spool;
mod start;
mod step;
mod tags;
mod template;
mod uploads;

pub use builder::{Base, Bases, Builder, Settings};
pub use counters::BuildCounts;
pub use error::{BuildError, BuilderError};
pub use incoming::Incoming;
pub use log::{LogEvent, LogReader};
pub use spool::{LARGEST_PER_ACCOUNT, StoredContext};
pub use template::{DEFAULT_TAG, NewTemplate, OtherBuilds, PendingTemplate, Start, Template};
