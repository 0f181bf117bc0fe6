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

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_caller_is_asked_now_and_then() {
        let asked = Cell::new(0);
        let is_stopped = || {
            asked.set(asked.get() + 1);
            false
        };
        let mut search = Search::new(&is_stopped);
        search.spend(STEPS_PER_CHECK - 1).unwrap();
        assert_eq!(asked.get(), 0);
        search.spend(1).unwrap();
        assert_eq!(asked.get(), 1);
        // The next steps count from there.
        search.spend(STEPS_PER_CHECK - 1).unwrap();
        assert_eq!(asked.get(), 1);
        search.spend(STEPS_PER_CHECK).unwrap();
        assert_eq!(asked.get(), 2);
    }

    #[test]
    fn a_caller_that_waits_no_more_ends_the_search() {
        let mut search = Search::new(&|| true);
        search.spend(STEPS_PER_CHECK - 1).unwrap();
        assert_eq!(search.spend(1).unwrap_err(), BuildError::new("the build was stopped"));
    }

    #[test]
    fn all_steps_together_are_bounded() {
        let mut search = Search::new(&|| false);
        search.spend(MAX_EFFORT - 1).unwrap();
        search.spend(1).unwrap();
        let error = search.spend(1).unwrap_err();
        assert!(error.message.contains("too many comparisons"), "{error}");
        let pattern = Pattern::new("*.py").unwrap();
        let mut fresh = Search::new(&|| false);
        assert!(fresh.matches(&pattern, "a.py").unwrap() && !fresh.matches(&pattern, "a.rs").unwrap());
        assert!(search.matches(&pattern, "a.py").is_err(), "nothing is left");
    }
}
