//! The bound on the work of finding the files of copies. It ends early when nobody waits for the result any more.

use api::wildcard::{Effort, Pattern};

use crate::error::BuildError;

/// Steps that the copies of a Dockerfile may take to find their files: those of patterns, and some for each file. A few seconds.
pub const MAX_EFFORT: u64 = 1 << 29;
/// How often the caller is asked whether it still waits.
const STEPS_PER_CHECK: u64 = 1 << 20;

/// The work that finding files may still take, and whether anybody waits for it.
pub struct Search<'a> {
    effort: Effort,
    /// What was left of it when the caller was asked.
    checked: u64,
    is_stopped: &'a dyn Fn() -> bool,
}

impl<'a> Search<'a> {
    /// The search of one copy. `is_stopped` is asked now and then.
    pub fn new(is_stopped: &'a dyn Fn() -> bool) -> Self {
        Self { effort: Effort::new(MAX_EFFORT), checked: MAX_EFFORT, is_stopped }
    }

    /// Whether a pattern matches a path.
    pub fn matches(&mut self, pattern: &Pattern, path: &str) -> Result<bool, BuildError> {
        let matches = pattern.matches_within(path, &mut self.effort).map_err(|_| too_much())?;
        self.check()?;
        Ok(matches)
    }

    /// Takes steps for other work.
    pub fn spend(&mut self, steps: u64) -> Result<(), BuildError> {
        self.effort.spend(steps).map_err(|_| too_much())?;
        self.check()
    }

    fn check(&mut self) -> Result<(), BuildError> {
        if self.checked - self.effort.left() < STEPS_PER_CHECK {
            return Ok(());
        }
        self.checked = self.effort.left();
        if (self.is_stopped)() { Err(BuildError::new("the build was stopped")) } else { Ok(()) }
    }
}

fn too_much() -> BuildError {
    BuildError::new(
        "the sources of all COPY and ADD take too many comparisons to find; use fewer or shorter wildcards, or a smaller context",
    )
}
