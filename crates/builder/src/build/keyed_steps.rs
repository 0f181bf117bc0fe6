//! The steps of a plan with the keys under which their results are found again.

use std::collections::BTreeMap;

use dockerfile::{BuildPlan, Origin, PlanStep, Work};

use crate::build::keys;
use crate::context::Context;
use crate::copy::search::Search;
use crate::copy::{CopyTarget, Selection};
use crate::error::BuildError;

/// A step with its key.
pub struct KeyedStep {
    pub step: PlanStep,
    /// Of a copy.
    pub target: CopyTarget,
    pub key: String,
}

/// Computes the keys, for which the files of all copies of the context are found. `roots` has the keys of the bases by their names. A
/// plan whose result is not that of its last step gets a step without work, so that every template has a snapshot, which is its last.
/// Blocks.
pub fn keyed_steps(
    mut plan: BuildPlan,
    line: usize,
    roots: &BTreeMap<String, String>,
    context: &Context,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<KeyedStep>, BuildError> {
    let is_last = |step: usize| step + 1 == plan.steps.len();
    if !matches!(&plan.result, Origin::Step(step) if is_last(*step)) {
        let text = "no step changes the base".to_owned();
        let (above, directories) = (plan.result.clone(), Vec::new());
        plan.steps.push(PlanStep { above, line, text, directories, work: Work::Nothing });
    }
    let mut search = Search::new(is_stopped);
    let mut keyed: Vec<KeyedStep> = Vec::new();
    for step in plan.steps {
        let key_of = |origin: &Origin| match origin {
            Origin::Base(name) => roots.get(name).map_or("", String::as_str),
            Origin::Step(number) => keyed.get(*number).map_or("", |step| &step.key),
        };
        let parent = key_of(&step.above);
        let (key, target) = match &step.work {
            Work::Copy(copy) => match &copy.from {
                Some(from) => {
                    (keys::of_foreign_copy(parent, &step, copy, key_of(from)), CopyTarget::default())
                }
                None => {
                    // Dropped with the step: the files of one copy at a time are in memory.
                    let found = Selection::find(context, copy, &mut search);
                    let found = found.map_err(|error| error.in_line(step.line))?;
                    (keys::of_step(parent, &step, Some((context, &found))), found.target)
                }
            },
            Work::Run(_) | Work::Nothing => (keys::of_step(parent, &step, None), CopyTarget::default()),
        };
        keyed.push(KeyedStep { step, target, key });
    }
    Ok(keyed)
}

/// Which steps have to run, by whether each has a stored result: those that the last one needs, up to stored results.
pub fn steps_to_run(steps: &[KeyedStep], is_stored: &dyn Fn(usize) -> bool) -> Vec<bool> {
    let mut needed = vec![false; steps.len()];
    let mut runs = needed.clone();
    if let Some(last) = needed.last_mut() {
        *last = true;
    }
    for number in (0..steps.len()).rev() {
        if !needed[number] || is_stored(number) {
            continue;
        }
        runs[number] = true;
        let step = &steps[number].step;
        let from = match &step.work {
            Work::Copy(copy) => copy.from.as_ref(),
            Work::Run(_) | Work::Nothing => None,
        };
        for origin in [Some(&step.above), from].into_iter().flatten() {
            if let Origin::Step(earlier) = origin {
                needed[*earlier] = true;
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use dockerfile::{BuildArgs, ImageSettings};

    use super::*;

    fn keyed(text: &str) -> Vec<KeyedStep> {
        let plan =
            dockerfile::parse(text).unwrap().plan(&BuildArgs::new(), &ImageSettings::default()).unwrap();
        let roots = ["a", "b"].map(|name| (name.to_owned(), format!("root {name}"))).into();
        keyed_steps(plan, 1, &roots, &Context::default(), &|| false).unwrap()
    }

    fn runs(steps: &[KeyedStep], stored: &[usize]) -> Vec<usize> {
        let runs = steps_to_run(steps, &|number| stored.contains(&number));
        (0..steps.len()).filter(|number| runs[*number]).collect()
    }

    const STAGES: &str = "FROM a AS one\nRUN 0\nRUN 1\nFROM b AS two\nRUN 2\nCOPY --from=one /x /y\nRUN 4";

    #[test]
    fn the_last_step_has_the_result() {
        assert_eq!(keyed("FROM a").len(), 1);
        assert_eq!(keyed("FROM a\nRUN x").len(), 1);
        let empty = keyed("FROM a AS one\nRUN 0\nFROM b\nCOPY --from=one /x /y\nFROM one");
        assert_eq!(empty.len(), 1, "the second stage is not needed");
        let above = keyed("FROM a AS one\nRUN 0\nFROM b AS two\nCOPY --from=one /x /y\nFROM a\nENV A=1");
        assert_eq!(above.len(), 1);
        assert!(matches!(&above[0].step.above, Origin::Base(name) if name == "a"));
    }

    #[test]
    fn keys_cover_what_a_copy_takes_files_of() {
        let keys = |text: &str| keyed(text).into_iter().map(|step| step.key).collect::<Vec<_>>();
        let (stages, changed) = (keys(STAGES), keys(&STAGES.replace("RUN 1", "RUN one")));
        let same: Vec<bool> = stages.iter().zip(&changed).map(|(one, other)| one == other).collect();
        assert_eq!(same, [true, false, true, false, false]);
        let of_image = |name: &str| keys(&format!("FROM a\nCOPY --from={name} /x /y"));
        assert_ne!(of_image("a"), of_image("b"));
    }

    #[test]
    fn steps_below_stored_results_do_not_run() {
        let steps = keyed(STAGES);
        assert_eq!(runs(&steps, &[]), [0, 1, 2, 3, 4]);
        assert_eq!(runs(&steps, &[4]), Vec::<usize>::new());
        assert_eq!(runs(&steps, &[3]), [4]);
        assert_eq!(runs(&steps, &[1]), [2, 3, 4]);
        assert_eq!(runs(&steps, &[0, 2]), [1, 3, 4]);
    }
}
