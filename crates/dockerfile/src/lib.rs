//! Dockerfiles: parses one, and plans the steps of its build.
//!
//! ```text
//! text --parse--> Dockerfile --bases--> names of the bases --plan, with the settings of the bases--> Plan
//! ```
//!
//! Called by the template builder. Pure: no I/O and no clock. The text is untrusted: its size and the number of its instructions
//! are bounded. Instructions that the builder does not carry out are refused with their line, or noted if
//! sandboxes have no use for them.

mod arguments;
mod expand;
mod here_doc;
mod instruction;
mod notes;
mod pattern;
mod plan;
mod read;
mod run_mount;
mod stages;
mod values;
mod words;

use std::collections::BTreeMap;

pub use instruction::Dockerfile;
pub use notes::{Ineffective, Note};
pub use plan::{BuildPlan, Copy, CopySource, Directory, ImageSettings, Origin, PlanStep, Run, Work};
pub use read::parse;
pub use stages::Base;

/// The largest Dockerfile.
pub const MAX_BYTES: usize = 256 * 1024;
/// Most instructions of a Dockerfile.
pub const MAX_INSTRUCTIONS: usize = 256;
/// Most stages of a Dockerfile. Each has the settings of the one that it is built upon.
pub const MAX_STAGES: usize = 16;
/// Most instructions that are carried out, with those of `ONBUILD`.
pub const MAX_PLANNED: usize = 1024;
/// Most here-documents of a Dockerfile.
pub const MAX_HERE_DOCUMENTS: usize = 256;
/// Most bytes of the variables of `ENV` together, and of those of `ARG`.
pub const MAX_ENV_BYTES: usize = 128 * 1024;
/// Most variables of `ENV`, with those of the base, and most of `ARG`. Each word looks its variables up one by one.
pub const MAX_VARIABLES: usize = 2048;
/// Most bytes of the variables of all `RUN`s together. `RUN`s that follow each other without an `ENV` or `ARG` in between share them.
pub const MAX_STEP_ENV_BYTES: usize = 8 * 1024 * 1024;
/// Most sources of all `COPY`s and `ADD`s together.
pub const MAX_SOURCES: usize = 4096;
/// Most bytes of all words together after their variables are expanded. A word of few bytes can become a long one.
pub const MAX_EXPANDED_BYTES: usize = 1024 * 1024;

/// Values of build arguments, which replace the defaults of `ARG`.
pub type BuildArgs = BTreeMap<String, String>;

/// Why a Dockerfile cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct DockerfileError {
    /// From 1 on.
    pub line: usize,
    pub message: String,
}

impl DockerfileError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }
}
