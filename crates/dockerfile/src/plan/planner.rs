//! Plans the steps of a build: expands variables, and combines each instruction with the settings that are in force at its line.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Copy, CopySource, Directory, ImageSettings, Origin, PlanStep, Run, SHELL, Work};
use crate::arguments::{PREDEFINED, check_number, count_bytes, value_of};
use crate::expand::expand;
use crate::instruction::{Arg, CommandForm, Dockerfile, Instruction, InstructionKind, RawSource};
use crate::read::parse_trigger;
use crate::stages::{Parent, copied_from};
use crate::values::{normalized, ports_of, whole_owner};
use crate::{
    BuildArgs, DockerfileError, MAX_ENV_BYTES, MAX_EXPANDED_BYTES, MAX_PLANNED, MAX_SOURCES,
    MAX_STEP_ENV_BYTES, MAX_VARIABLES,
};

/// As in other builders, for images that have none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Most ports of `EXPOSE`.
const MAX_PORTS: usize = 4096;
const MODE_BITS: u32 = 0o7777;
/// What a variable takes in memory besides its text.
const VARIABLE_BYTES: usize = 128;

/// What stages above a stage begin with.
#[derive(Clone)]
struct StageResult {
    settings: ImageSettings,
    args: BTreeMap<String, String>,
    above: Origin,
}

/// The state of the plan of one Dockerfile; stages are added in the order of their needs.
pub(super) struct Planner<'a> {
    file: &'a Dockerfile,
    escape: char,
    given: &'a BuildArgs,
    global: BTreeMap<String, String>,
    /// Declared build arguments with a value.
    args: BTreeMap<String, String>,
    arg_bytes: usize,
    /// The variables of the last `RUN`, if neither `ENV` nor `ARG` has changed them.
    step_env: Option<Arc<BTreeMap<String, String>>>,
    step_env_bytes: usize,
    /// Of all copies so far.
    sources: usize,
    /// Of all words so far.
    expanded_bytes: Cell<usize>,
    pub(super) settings: ImageSettings,
    /// Whether a `CMD` precedes in the stage.
    has_own_cmd: bool,
    /// Of `WORKDIR`s since the last step.
    directories: Vec<Directory>,
    pub(super) steps: Vec<PlanStep>,
    /// What the next step begins with.
    pub(super) above: Origin,
    stage: usize,
    /// Of the stages before, as far as they are needed.
    results: Vec<Option<StageResult>>,
    kept_bytes: usize,
    /// Instructions so far.
    planned: usize,
}

impl<'a> Planner<'a> {
    pub(super) fn new(file: &'a Dockerfile, given: &'a BuildArgs, global: BTreeMap<String, String>) -> Self {
        Self {
            file,
            escape: file.escape,
            given,
            global,
            args: BTreeMap::new(),
            arg_bytes: 0,
            step_env: None,
            step_env_bytes: 0,
            sources: 0,
            expanded_bytes: Cell::new(0),
            settings: ImageSettings::default(),
            has_own_cmd: false,
            directories: Vec::new(),
            steps: Vec::new(),
            above: Origin::Base(String::new()),
            stage: 0,
            results: vec![None; file.stages.len()],
            kept_bytes: 0,
            planned: 0,
        }
    }

    /// Plans a stage, after those that it needs.
    pub(super) fn stage(
        &mut self,
        number: usize,
        parent: &Parent,
        settings: &dyn Fn(&str) -> ImageSettings,
    ) -> Result<(), DockerfileError> {
        let file = self.file;
        let stage = &file.stages[number];
        let line = stage.from.line;
        let StageResult { settings, args, above } = match parent {
            Parent::External(base) => self.result_of_base(&base.name, settings),
            Parent::Stage(earlier) => self.result_of(*earlier, line)?,
        };
        (self.settings, self.args, self.above) = (settings, args, above);
        (self.stage, self.step_env, self.has_own_cmd) = (number, None, false);
        let mut triggered = Vec::new();
        for text in std::mem::take(&mut self.settings.on_build) {
            triggered.extend(parse_trigger(&text, line)?);
        }
        let mut last = None;
        for instruction in triggered.iter().chain(&stage.instructions) {
            self.planned += 1;
            check_number(line, "instructions with those of ONBUILD", self.planned, MAX_PLANNED)?;
            self.add(instruction)?;
            last = Some(instruction);
        }
        if !self.directories.is_empty()
            && let Some(instruction) = last
        {
            self.step(instruction, Work::Nothing);
        }
        self.keep_result(number, line)
    }

    /// For the stages that are built upon this one, or copy from it.
    fn keep_result(&mut self, number: usize, line: usize) -> Result<(), DockerfileError> {
        if number + 1 == self.file.stages.len() {
            return Ok(());
        }
        let (env, labels) = (&self.settings.env, &self.settings.labels);
        let pairs = labels.iter().chain(&self.args).chain(env.iter().map(|(name, value)| (name, value)));
        self.kept_bytes +=
            pairs.map(|(name, value)| name.len() + value.len() + VARIABLE_BYTES).sum::<usize>();
        if self.kept_bytes > MAX_STEP_ENV_BYTES {
            let message = format!("the settings of all stages have more than {MAX_STEP_ENV_BYTES} bytes");
            return Err(DockerfileError::new(line, message));
        }
        let (settings, args, above) = (self.settings.clone(), self.args.clone(), self.above.clone());
        self.results[number] = Some(StageResult { settings, args, above });
        Ok(())
    }

    fn result_of_base(&self, name: &str, settings: &dyn Fn(&str) -> ImageSettings) -> StageResult {
        let mut settings = settings(name);
        if settings.env.iter().all(|(name, _)| name != "PATH") {
            settings.env.push(("PATH".to_owned(), DEFAULT_PATH.to_owned()));
        }
        let predefined =
            PREDEFINED.iter().filter_map(|name| Some(((*name).to_owned(), self.given.get(*name)?.clone())));
        StageResult { settings, args: predefined.collect(), above: Origin::Base(name.to_owned()) }
    }

    fn result_of(&self, stage: usize, line: usize) -> Result<StageResult, DockerfileError> {
        self.results[stage].clone().ok_or_else(|| unplanned(line))
    }

    fn add(&mut self, instruction: &Instruction) -> Result<(), DockerfileError> {
        match &instruction.kind {
            InstructionKind::Args(args) => self.declare(args),
            InstructionKind::Run { command, .. } => {
                let run = Run {
                    argv: self.argv(command),
                    env: self.step_env(instruction.line)?,
                    workdir: self.settings.workdir.clone().unwrap_or_else(|| "/".to_owned()),
                    user: self.settings.user.clone(),
                };
                self.step(instruction, Work::Run(run));
                Ok(())
            }
            InstructionKind::Copy { .. } => {
                let copy = self.copy(instruction)?;
                self.step(instruction, Work::Copy(copy));
                Ok(())
            }
            _ => self.change_settings(instruction),
        }
    }

    fn step_env(&mut self, line: usize) -> Result<Arc<BTreeMap<String, String>>, DockerfileError> {
        if let Some(same) = &self.step_env {
            return Ok(Arc::clone(same));
        }
        let all: BTreeMap<_, _> = self.settings.env.iter().cloned().chain(self.args.clone()).collect();
        // A short variable takes more memory than its text.
        self.step_env_bytes +=
            all.iter().map(|(name, value)| name.len() + value.len() + VARIABLE_BYTES).sum::<usize>();
        if self.step_env_bytes > MAX_STEP_ENV_BYTES {
            let message = format!(
                "the variables of all RUNs together have more than {MAX_STEP_ENV_BYTES} bytes; \
                 use fewer of them, or fewer ENV and ARG between RUNs"
            );
            return Err(DockerfileError::new(line, message));
        }
        let all = Arc::new(all);
        self.step_env = Some(Arc::clone(&all));
        Ok(all)
    }

    fn declare(&mut self, args: &[Arg]) -> Result<(), DockerfileError> {
        self.step_env = None;
        for arg in args {
            let find = |name: &str| self.variable(name);
            let value = value_of(arg, self.given, Some(&self.global), self.escape, &find)?;
            count_bytes(&mut self.arg_bytes, arg, value.as_deref())?;
            self.args.extend(value.map(|value| (arg.name.clone(), value)));
            check_number(arg.line, "variables of ARG", self.args.len(), MAX_VARIABLES)?;
        }
        Ok(())
    }

    /// Instructions without a step.
    fn change_settings(&mut self, instruction: &Instruction) -> Result<(), DockerfileError> {
        let line = instruction.line;
        match &instruction.kind {
            InstructionKind::Env(pairs) => {
                // All values are expanded with the variables before this line.
                let pairs = self.expand_pairs(line, pairs)?;
                self.step_env = None;
                for (name, value) in pairs {
                    self.args.remove(&name);
                    set(&mut self.settings.env, name, value);
                    check_number(line, "variables of ENV", self.settings.env.len(), MAX_VARIABLES)?;
                }
                self.check_env(line)?;
            }
            InstructionKind::Labels(pairs) => {
                let pairs = self.expand_pairs(line, pairs)?;
                self.settings.labels.extend(pairs);
            }
            InstructionKind::Workdir(path) => {
                let path = self.absolute(&self.expand(line, path)?);
                self.settings.workdir = Some(path.clone());
                self.directories.push(Directory { path, owner: self.settings.user.clone() });
            }
            InstructionKind::User(user) => {
                let user = self.user(line, user)?;
                self.settings.user = Some(user).filter(|user| user != "root" && user != "0");
            }
            InstructionKind::Expose(ports) => {
                for port in ports {
                    let ports = ports_of(&self.expand(line, port)?);
                    let ports = ports.map_err(|message| DockerfileError::new(line, message))?;
                    self.settings.exposed.extend(ports);
                    check_number(line, "ports of EXPOSE", self.settings.exposed.len(), MAX_PORTS)?;
                }
            }
            InstructionKind::Shell(words) => self.settings.shell = Some(words.clone()),
            InstructionKind::OnBuild(text) => self.settings.on_build.push(text.clone()),
            InstructionKind::Cmd(command) => {
                self.settings.cmd = Some(self.argv(command)).filter(|argv| !argv.is_empty());
                self.has_own_cmd = true;
            }
            InstructionKind::Entrypoint(command) => {
                self.settings.entrypoint = Some(self.argv(command));
                // As in other builders: a command of the base belongs to its entry point.
                if !self.has_own_cmd {
                    self.settings.cmd = None;
                }
            }
            InstructionKind::Args(_) | InstructionKind::Run { .. } | InstructionKind::Copy { .. } => {}
            InstructionKind::Volume
            | InstructionKind::HealthCheck
            | InstructionKind::StopSignal
            | InstructionKind::Maintainer => {}
        }
        Ok(())
    }

    fn expand_pairs(
        &self,
        line: usize,
        pairs: &[(String, String)],
    ) -> Result<Vec<(String, String)>, DockerfileError> {
        let pair =
            |(name, value): &(String, String)| Ok((self.expand(line, name)?, self.expand(line, value)?));
        pairs.iter().map(pair).collect()
    }

    fn user(&self, line: usize, user: &str) -> Result<String, DockerfileError> {
        let user = self.expand(line, user)?;
        if user.is_empty() || user.contains(char::is_whitespace) {
            return Err(DockerfileError::new(line, format!("USER is '{user}'; allowed: USER or USER:GROUP")));
        }
        Ok(user)
    }

    fn step(&mut self, instruction: &Instruction, work: Work) {
        let directories = std::mem::take(&mut self.directories);
        let (line, text) = (instruction.line, instruction.text.clone());
        let above = std::mem::replace(&mut self.above, Origin::Step(self.steps.len()));
        self.steps.push(PlanStep { above, line, text, directories, work });
    }

    fn copy(&mut self, instruction: &Instruction) -> Result<Copy, DockerfileError> {
        let line = instruction.line;
        let InstructionKind::Copy { sources, destination, owner, mode, extracts, from } = &instruction.kind
        else {
            return Err(DockerfileError::new(line, "not a COPY"));
        };
        self.sources += sources.len();
        check_number(line, "sources of COPY and ADD", self.sources, MAX_SOURCES)?;
        let source = |source: &RawSource| match source {
            RawSource::Path(path) => Ok(CopySource::Path(self.expand(line, path)?)),
            RawSource::Inline { name, content, expands } => {
                let content = if *expands { self.expand_document(line, content)? } else { content.clone() };
                Ok(CopySource::Inline { name: name.clone(), content })
            }
        };
        let sources: Vec<CopySource> = sources.iter().map(source).collect::<Result<_, _>>()?;
        let given = self.expand(line, destination)?;
        let mut destination = self.absolute(&given);
        let names_directory = given.ends_with('/') || given.ends_with("/.") || given == "." || given == "..";
        if names_directory && !destination.ends_with('/') {
            destination.push('/');
        }
        if sources.len() > 1 && !destination.ends_with('/') {
            let message = "the destination of several sources is a directory and ends with '/'";
            return Err(DockerfileError::new(line, message));
        }
        let mode = mode.as_ref().map(|mode| {
            let mode = self.expand(line, mode)?;
            let bits = u32::from_str_radix(&mode, 8).ok().filter(|bits| *bits <= MODE_BITS);
            bits.ok_or_else(|| {
                DockerfileError::new(line, format!("--chmod is '{mode}'; allowed: an octal mode such as 755"))
            })
        });
        let owner = owner.as_ref().map(|owner| self.expand(line, owner)).transpose()?.map(whole_owner);
        let owner = owner.filter(|owner| !["root", "root:root", "0:0"].contains(&owner.as_str()));
        let from = from.as_ref().map(|name| self.origin(line, name)).transpose()?;
        Ok(Copy { from, sources, destination, owner, mode: mode.transpose()?, extracts: *extracts })
    }

    /// What `--from` of a copy names.
    fn origin(&self, line: usize, name: &str) -> Result<Origin, DockerfileError> {
        Ok(match copied_from(self.file, self.stage, line, name)? {
            Parent::External(base) => Origin::Base(base.name),
            Parent::Stage(stage) => match &self.results[stage] {
                Some(result) => result.above.clone(),
                None => return Err(unplanned(line)),
            },
        })
    }

    /// The later one of `ENV` and `ARG` counts: `ENV` removes the build argument.
    fn variable(&self, name: &str) -> Option<String> {
        let env = || self.settings.env.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        self.args.get(name).or_else(env).cloned()
    }

    fn expand(&self, line: usize, word: &str) -> Result<String, DockerfileError> {
        let find = |name: &str| self.variable(name);
        let expanded =
            expand(word, self.escape, &find).map_err(|message| DockerfileError::new(line, message))?;
        if expanded.contains('\0') {
            return Err(DockerfileError::new(line, "a word has a NUL byte"));
        }
        self.expanded_bytes.set(self.expanded_bytes.get() + expanded.len());
        if self.expanded_bytes.get() > MAX_EXPANDED_BYTES {
            let message = format!(
                "the words have more than {MAX_EXPANDED_BYTES} bytes after their variables are expanded"
            );
            return Err(DockerfileError::new(line, message));
        }
        Ok(expanded)
    }

    /// Only variables and escapes: quotes are part of the content.
    fn expand_document(&self, line: usize, content: &str) -> Result<String, DockerfileError> {
        let (mut quoted, mut rest) = (String::from('"'), content.chars());
        while let Some(character) = rest.next() {
            match character {
                '"' => quoted.extend([self.escape, '"']),
                character if character == self.escape => match rest.next() {
                    Some(next) if ['"', '$', self.escape].contains(&next) => quoted.extend([character, next]),
                    next => quoted.extend(next),
                },
                character => quoted.push(character),
            }
        }
        quoted.push('"');
        self.expand(line, &quoted)
    }

    fn absolute(&self, path: &str) -> String {
        normalized(self.settings.workdir.as_deref().unwrap_or("/"), path)
    }

    fn argv(&self, command: &CommandForm) -> Vec<String> {
        match command {
            CommandForm::Exec(words) => words.clone(),
            CommandForm::Shell(text) if text.is_empty() => Vec::new(),
            CommandForm::Shell(text) => {
                let default = || SHELL.map(str::to_owned).to_vec();
                let mut argv = self.settings.shell.clone().unwrap_or_else(default);
                argv.push(text.clone());
                argv
            }
        }
    }

    fn check_env(&self, line: usize) -> Result<(), DockerfileError> {
        let env = &self.settings.env;
        if let Some((name, _)) = env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            return Err(DockerfileError::new(line, format!("'{name}' is not the name of a variable")));
        }
        let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        if bytes > MAX_ENV_BYTES {
            let message = format!("the variables have {bytes} bytes; allowed: at most {MAX_ENV_BYTES}");
            return Err(DockerfileError::new(line, message));
        }
        Ok(())
    }
}

/// A stage precedes those that need it.
fn unplanned(line: usize) -> DockerfileError {
    DockerfileError::new(line, "the stage is not known here")
}

fn set(env: &mut Vec<(String, String)>, name: String, value: String) {
    match env.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => env.push((name, value)),
    }
}
