//! The stages of a Dockerfile: what each begins with and copies from, and which of them the last one needs. The others are not built.

use std::collections::BTreeMap;

use crate::arguments::{global_variables, platform};
use crate::expand::expand;
use crate::instruction::{Dockerfile, From, InstructionKind};
use crate::{BuildArgs, DockerfileError};

/// What a Dockerfile builds upon or copies from: an image, a template or a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub line: usize,
    pub name: String,
}

/// What a stage begins with, or what a copy takes files of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parent {
    External(Base),
    /// An earlier stage, by its position.
    Stage(usize),
}

/// What each stage begins with; `None` if the last one does not need it.
pub type NeededStages = Vec<Option<Parent>>;

impl Dockerfile {
    /// What the result is built upon.
    pub fn base(&self, args: &BuildArgs) -> Result<Base, DockerfileError> {
        let variables = global_variables(self, args)?;
        let mut stage = self.stages.len().saturating_sub(1);
        loop {
            match parent_of(self, stage, &variables)? {
                Parent::External(base) => return Ok(base),
                // An earlier one, so this ends.
                Parent::Stage(number) => stage = number,
            }
        }
    }

    /// All that the needed stages build upon or copy from, each once.
    pub fn bases(&self, args: &BuildArgs) -> Result<Vec<Base>, DockerfileError> {
        let needed = needed(self, &global_variables(self, args)?)?;
        let mut bases: Vec<Base> = Vec::new();
        for (number, parent) in needed.into_iter().enumerate() {
            let Some(parent) = parent else { continue };
            let mut parents = vec![parent];
            for (line, name) in copied(self, number) {
                parents.push(copied_from(self, number, line, name)?);
            }
            for parent in parents {
                if let Parent::External(base) = parent
                    && bases.iter().all(|known| known.name != base.name)
                {
                    bases.push(base);
                }
            }
        }
        Ok(bases)
    }
}

impl Dockerfile {
    /// How many lines of the text end with a stage, which is the last one of them and so their result. The stage is named as by
    /// `COPY --from`: by its name, without regard to case, or by its number. `None` if there is no such stage.
    pub fn lines_until(&self, stage: &str) -> Option<usize> {
        let number = match stage.parse::<usize>() {
            Ok(number) => Some(number).filter(|number| *number < self.stages.len()),
            Err(_) => stage_named(self, self.stages.len(), stage),
        };
        let next = self.stages.get(number? + 1);
        Some(next.map_or(usize::MAX, |next| next.from.line.saturating_sub(1)))
    }

    /// The names of the stages that have one.
    pub fn stage_names(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().filter_map(|stage| stage.name.as_deref())
    }
}

/// The stages that the last one needs.
pub fn needed(
    file: &Dockerfile,
    variables: &BTreeMap<String, String>,
) -> Result<NeededStages, DockerfileError> {
    let mut needed: NeededStages = vec![None; file.stages.len()];
    let mut open = vec![file.stages.len().saturating_sub(1)];
    while let Some(number) = open.pop() {
        if needed[number].is_some() {
            continue;
        }
        let parent = parent_of(file, number, variables)?;
        if let Parent::Stage(earlier) = parent {
            open.push(earlier);
        }
        for (line, name) in copied(file, number) {
            if let Parent::Stage(earlier) = copied_from(file, number, line, name)? {
                open.push(earlier);
            }
        }
        needed[number] = Some(parent);
    }
    Ok(needed)
}

/// The lines and the values of `COPY --from` in a stage.
fn copied(file: &Dockerfile, stage: usize) -> impl Iterator<Item = (usize, &str)> {
    file.stages[stage].instructions.iter().filter_map(|instruction| match &instruction.kind {
        InstructionKind::Copy { from: Some(name), .. } => Some((instruction.line, name.as_str())),
        _ => None,
    })
}

fn parent_of(
    file: &Dockerfile,
    stage: usize,
    variables: &BTreeMap<String, String>,
) -> Result<Parent, DockerfileError> {
    let From { line, image, platform: wanted } = &file.stages[stage].from;
    let find = |name: &str| variables.get(name).cloned();
    let word =
        |word: &str| expand(word, file.escape, &find).map_err(|message| DockerfileError::new(*line, message));
    if let Some(wanted) = wanted {
        let (wanted, own) = (word(wanted)?, platform());
        if wanted != own {
            let message = format!("the platform is '{wanted}'; this host has '{own}'");
            return Err(DockerfileError::new(*line, message));
        }
    }
    let name = word(image)?;
    if let Some(earlier) = stage_named(file, stage, &name) {
        return Ok(Parent::Stage(earlier));
    }
    match name.as_str() {
        "" => Err(DockerfileError::new(*line, "the name of the base is empty")),
        "scratch" => {
            Err(DockerfileError::new(*line, "FROM scratch is not supported: a sandbox needs a bash"))
        }
        _ => Ok(Parent::External(Base { line: *line, name })),
    }
}

/// What `COPY --from` names: an earlier stage by its name or number, or something else.
pub fn copied_from(
    file: &Dockerfile,
    stage: usize,
    line: usize,
    name: &str,
) -> Result<Parent, DockerfileError> {
    if let Ok(number) = name.parse::<usize>() {
        if number < stage {
            return Ok(Parent::Stage(number));
        }
        return Err(DockerfileError::new(line, format!("--from={number} is not an earlier stage")));
    }
    if let Some(earlier) = stage_named(file, stage, name) {
        return Ok(Parent::Stage(earlier));
    }
    match name {
        "" | "scratch" => Err(DockerfileError::new(line, format!("--from={name} has no files"))),
        _ => Ok(Parent::External(Base { line, name: name.to_owned() })),
    }
}

/// The stage before another one that has a name, without regard to case.
fn stage_named(file: &Dockerfile, before: usize, name: &str) -> Option<usize> {
    let earlier = &file.stages[..before];
    earlier
        .iter()
        .rposition(|stage| stage.name.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn names(text: &str) -> Result<Vec<String>, DockerfileError> {
        let bases = parse(text)?.bases(&BuildArgs::new())?;
        Ok(bases.into_iter().map(|base| base.name).collect())
    }

    #[test]
    fn bases_are_those_of_the_needed_stages() {
        for (text, bases, base) in [
            ("FROM a", &["a"][..], "a"),
            ("FROM a AS one\nFROM b AS two\nFROM One", &["a"], "a"),
            ("FROM a AS one\nFROM b\nFROM c\nCOPY --from=one x y\nCOPY --from=1 x y", &["a", "b", "c"], "c"),
            (
                "ARG X=one\nFROM a AS one\nFROM $X\nCOPY --from=img:1 x y\nCOPY --from=a x y",
                &["a", "img:1"],
                "a",
            ),
            // A name is that of an earlier stage only.
            ("FROM b AS a\nFROM a AS b\nFROM b", &["b"], "b"),
            ("FROM scratch AS unused\nFROM a", &["a"], "a"),
        ] {
            assert_eq!(names(text).unwrap(), bases, "{text}");
            assert_eq!(parse(text).unwrap().base(&BuildArgs::new()).unwrap().name, base, "{text}");
        }
    }

    #[test]
    fn unknown_parents_are_errors() {
        for (text, line, part) in [
            ("FROM a\nFROM b\nCOPY --from=1 x y", 3, "not an earlier stage"),
            ("FROM a\nCOPY --from=0 x y", 2, "not an earlier stage"),
            ("FROM a\nCOPY --from=scratch x y", 2, "no files"),
            ("FROM scratch AS s\nFROM s", 1, "scratch"),
        ] {
            let error = names(text).unwrap_err();
            assert!(error.line == line && error.message.contains(part), "{text}: {error}");
        }
    }
}
