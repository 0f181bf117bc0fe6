//! The plan of a build: its steps, with all that they need to be carried out without the Dockerfile.

mod planner;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::arguments::{PREDEFINED, global_variables};
use crate::instruction::{Dockerfile, InstructionKind};
use crate::notes::{Note, notes};
use crate::stages::needed;
use crate::{BuildArgs, DockerfileError};
use planner::Planner;

const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// What an image says of the processes in it. Templates have it in their records: additions need defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageSettings {
    /// In the order of their definition; names are unique.
    pub env: Vec<(String, String)>,
    /// `None` for `/`.
    pub workdir: Option<String>,
    /// `USER`, `UID`, `USER:GROUP` or `UID:GID`; `None` for root.
    pub user: Option<String>,
    pub cmd: Option<Vec<String>>,
    pub entrypoint: Option<Vec<String>>,
    /// `PORT/PROTOCOL`.
    pub exposed: BTreeSet<String>,
    pub labels: BTreeMap<String, String>,
    /// Of `SHELL`; `None` for `/bin/sh -c`.
    #[serde(default)]
    pub shell: Option<Vec<String>>,
    /// Instructions of `ONBUILD`, which builds upon the image begin with.
    #[serde(default)]
    pub on_build: Vec<String>,
}

impl ImageSettings {
    /// A command for `/bin/sh` with these settings.
    pub fn shell_command(&self, command: &str) -> Run {
        Run {
            argv: SHELL.into_iter().chain([command]).map(str::to_owned).collect(),
            env: Arc::new(self.env.iter().cloned().collect()),
            workdir: self.workdir.clone().unwrap_or_else(|| "/".to_owned()),
            user: self.user.clone(),
        }
    }
}

/// The steps of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildPlan {
    /// Those that a step needs precede it.
    pub steps: Vec<PlanStep>,
    pub result: Origin,
    /// Of the result.
    pub settings: ImageSettings,
    /// Build arguments that no `ARG` declares.
    pub unused_args: Vec<String>,
    /// Instructions without an effect on sandboxes.
    pub notes: Vec<Note>,
}

/// A file system that a step begins with, or that files are copied of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// That of an image, a template or a snapshot, by its name.
    Base(String),
    /// The result of a step, by its position.
    Step(usize),
}

/// A change of the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanStep {
    pub above: Origin,
    pub line: usize,
    /// The instruction, shortened.
    pub text: String,
    /// Directories of `WORKDIR`s, which are made first.
    pub directories: Vec<Directory>,
    pub work: Work,
}

/// A directory that is made, with its parents, unless it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    pub path: String,
    /// `None` for root.
    pub owner: Option<String>,
}

/// What a step does besides creating its directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Run(Run),
    Copy(Copy),
    /// Only the directories.
    Nothing,
}

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub argv: Vec<String>,
    /// All variables, build arguments included. Shared with other steps that have the same.
    pub env: Arc<BTreeMap<String, String>>,
    pub workdir: String,
    /// `None` for root.
    pub user: Option<String>,
}

/// Files from the build context, or from another file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    /// `None` for the context.
    pub from: Option<Origin>,
    pub sources: Vec<CopySource>,
    /// Absolute. With a slash at its end it is a directory.
    pub destination: String,
    /// `None` for root.
    pub owner: Option<String>,
    pub mode: Option<u32>,
    /// Whether archives among the sources are unpacked.
    pub extracts: bool,
}

/// What `COPY` and `ADD` copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CopySource {
    /// A path in the context, which may have wildcards.
    Path(String),
    Inline {
        name: String,
        content: String,
    },
}

impl Dockerfile {
    /// The steps upon bases that all have these settings.
    pub fn plan(&self, args: &BuildArgs, base: &ImageSettings) -> Result<BuildPlan, DockerfileError> {
        self.plan_above(args, &|_| base.clone())
    }

    /// The steps upon bases whose settings are found by their names.
    pub fn plan_above(
        &self,
        args: &BuildArgs,
        settings: &dyn Fn(&str) -> ImageSettings,
    ) -> Result<BuildPlan, DockerfileError> {
        let global = global_variables(self, args)?;
        let stages = needed(self, &global)?;
        let mut planner = Planner::new(self, args, global);
        for (number, parent) in stages.iter().enumerate() {
            if let Some(parent) = parent {
                planner.stage(number, parent, settings)?;
            }
        }
        let result = planner.above.clone();
        let unused_args = unused_args(self, args);
        let notes = notes(self, &stages, planner.settings.user.as_deref());
        Ok(BuildPlan { steps: planner.steps, result, settings: planner.settings, unused_args, notes })
    }
}

/// Build arguments that no `ARG` declares.
fn unused_args(file: &Dockerfile, given: &BuildArgs) -> Vec<String> {
    let instructions = file.stages.iter().flat_map(|stage| &stage.instructions);
    let of_stages = instructions.flat_map(|instruction| match &instruction.kind {
        InstructionKind::Args(args) => args.as_slice(),
        _ => &[],
    });
    let declared: BTreeSet<&str> =
        file.global_args.iter().chain(of_stages).map(|arg| arg.name.as_str()).chain(PREDEFINED).collect();
    given.keys().filter(|name| !declared.contains(name.as_str())).cloned().collect()
}

#[cfg(test)]
mod tests;
