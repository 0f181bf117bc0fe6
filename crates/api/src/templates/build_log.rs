//! Events of the log of a build.

use serde::{Deserialize, Serialize};

named! {
    /// Type of an event in the log of a build.
    BuildEvent by as_str {
        /// A step begins, or its result comes from the cache: [`BuildStep`].
        Step = "step",
        /// A line of output.
        Stdout = "stdout",
        Stderr = "stderr",
        /// A remark of the builder.
        Note = "note",
        /// The last event: the template.
        Done = "done",
        /// The last event of a stream that ends early: an error.
        Error = "error",
    }
}

/// The data of a [`BuildEvent::Step`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BuildStep {
    /// From 1 on.
    pub number: u32,
    pub total: u32,
    /// The line in the Dockerfile.
    pub line: u32,
    /// The instruction, shortened.
    #[cfg_attr(feature = "openapi", schema(example = "RUN apt-get update"))]
    pub text: String,
    pub cached: bool,
}
