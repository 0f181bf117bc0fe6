//! The steps of a plan with the files that they copy, and the keys under which their results are found again.

use std::sync::Arc;

use dockerfile::{Plan, Step, Work};

use crate::context::Context;
use crate::copy::{self, Selection};
use crate::error::Ended;
use crate::incoming::blocking;
use crate::keys;

/// A step with its files and its key.
pub struct KeyedStep {
    pub step: Step,
    pub selection: Option<Selection>,
    pub key: String,
}

/// Finds the files of all copies and computes the keys. A Dockerfile without a step gets one without work, so that every template has
/// a snapshot.
pub async fn keyed_steps(
    mut plan: Plan,
    line: usize,
    root: String,
    context: Arc<Context>,
) -> Result<Vec<KeyedStep>, Ended> {
    if plan.steps.is_empty() {
        let text = "no step changes the base".to_owned();
        plan.steps.push(Step { line, text, directories: Vec::new(), work: Work::Nothing });
    }
    let keyed = blocking(move || {
        let mut keyed: Vec<KeyedStep> = Vec::new();
        for step in plan.steps {
            let selection = match &step.work {
                Work::Copy(copy) => match copy::select(&context, copy) {
                    Ok(selection) => Some(selection),
                    Err(error) => return Ok(Err(error.in_line(step.line))),
                },
                Work::Run(_) | Work::Nothing => None,
            };
            let parent = keyed.last().map_or(&root, |last| &last.key);
            let key = keys::of_step(parent, &step, selection.as_ref());
            keyed.push(KeyedStep { step, selection, key });
        }
        Ok(Ok(keyed))
    })
    .await;
    match keyed {
        Ok(keyed) => Ok(keyed?),
        Err(_) => Err(Ended::Stopping),
    }
}
