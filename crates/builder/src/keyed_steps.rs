//! The steps of a plan with the keys under which their results are found again.

use dockerfile::{Plan, Step, Work};

use crate::context::Context;
use crate::copy::{Selection, Target};
use crate::error::BuildError;
use crate::keys;
use crate::search::Search;

/// A step with its key.
pub struct KeyedStep {
    pub step: Step,
    /// Of a copy.
    pub target: Target,
    pub key: String,
}

/// Computes the keys, for which the files of all copies are found. A Dockerfile without a step gets one without work, so that every
/// template has a snapshot. Blocks.
pub fn keyed_steps(
    mut plan: Plan,
    line: usize,
    root: &str,
    context: &Context,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<KeyedStep>, BuildError> {
    if plan.steps.is_empty() {
        let text = "no step changes the base".to_owned();
        plan.steps.push(Step { line, text, directories: Vec::new(), work: Work::Nothing });
    }
    let mut search = Search::new(is_stopped);
    let mut keyed: Vec<KeyedStep> = Vec::new();
    for step in plan.steps {
        // Dropped with the step: the files of one copy at a time are in memory.
        let selection = match &step.work {
            Work::Copy(copy) => {
                let found = Selection::find(context, copy, &mut search);
                Some(found.map_err(|error| error.in_line(step.line))?)
            }
            Work::Run(_) | Work::Nothing => None,
        };
        let parent = keyed.last().map_or(root, |last| &last.key);
        let key = keys::of_step(parent, &step, selection.as_ref().map(|selection| (context, selection)));
        let target = selection.map_or(Target::default(), |selection| selection.target);
        keyed.push(KeyedStep { step, target, key });
    }
    Ok(keyed)
}
