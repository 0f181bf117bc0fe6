//! Plans the steps of a build: expands variables, and combines each instruction with the settings that are in force at its line.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::expand::expand;
use crate::read::{Arg, Command, Dockerfile, From, Instruction, Kind, RawSource};
use crate::{
    BuildArgs, DockerfileError, MAX_ENV_BYTES, MAX_EXPANDED_BYTES, MAX_SOURCES, MAX_STEP_ENV_BYTES,
    MAX_VARIABLES,
};

/// Build arguments that need no `ARG`.
const PREDEFINED: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];
const DEFAULT_SHELL: [&str; 2] = ["/bin/sh", "-c"];
const MODE_BITS: u32 = 0o7777;
/// What a variable takes in memory besides its text.
const VARIABLE_BYTES: usize = 128;

/// What an image says of the processes in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
}

/// The steps of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Of the result.
    pub settings: ImageSettings,
    /// Build arguments that no `ARG` declares.
    pub unused_args: Vec<String>,
}

/// A change of the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub line: usize,
    /// The instruction, shortened.
    pub text: String,
    /// Directories of `WORKDIR`s, which are made first.
    pub directories: Vec<String>,
    pub work: Work,
}

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

/// Files from the build context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copy {
    pub sources: Vec<Source>,
    /// Absolute. With a slash at its end it is a directory.
    pub destination: String,
    /// `None` for root.
    pub owner: Option<String>,
    pub mode: Option<u32>,
    /// Whether archives among the sources are unpacked.
    pub extracts: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A path in the context, which may have wildcards.
    Path(String),
    Inline {
        name: String,
        content: String,
    },
}

/// What the Dockerfile builds upon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    pub line: usize,
    pub name: String,
}

impl Dockerfile {
    /// What it builds upon.
    pub fn base(&self, args: &BuildArgs) -> Result<Base, DockerfileError> {
        let From { line, image, platform: wanted } = &self.from;
        let variables = global_variables(self, args)?;
        let find = |name: &str| variables.get(name).cloned();
        let word = |word: &str| {
            expand(word, self.escape, &find).map_err(|message| DockerfileError::new(*line, message))
        };
        if let Some(wanted) = wanted {
            let (wanted, own) = (word(wanted)?, platform());
            if wanted != own {
                let message = format!("the platform is '{wanted}'; this host has '{own}'");
                return Err(DockerfileError::new(*line, message));
            }
        }
        let name = word(image)?;
        match name.as_str() {
            "" => Err(DockerfileError::new(*line, "the name of the base is empty")),
            "scratch" => {
                Err(DockerfileError::new(*line, "FROM scratch is not supported: a sandbox needs a bash"))
            }
            _ => Ok(Base { line: *line, name }),
        }
    }

    /// The steps upon a base with these settings.
    pub fn plan(&self, args: &BuildArgs, base: ImageSettings) -> Result<Plan, DockerfileError> {
        plan(self, args, base)
    }
}

/// The platform of this host as `FROM --platform` names it.
fn platform() -> String {
    format!("linux/{}", architecture())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Build arguments that have a value without a default, if an `ARG` declares them.
fn automatic(name: &str) -> Option<String> {
    match name {
        "TARGETPLATFORM" | "BUILDPLATFORM" => Some(platform()),
        "TARGETOS" | "BUILDOS" => Some("linux".to_owned()),
        "TARGETARCH" | "BUILDARCH" => Some(architecture().to_owned()),
        "TARGETVARIANT" | "BUILDVARIANT" => Some(String::new()),
        _ => None,
    }
}

/// The variables in force in `FROM`.
fn global_variables(
    file: &Dockerfile,
    args: &BuildArgs,
) -> Result<BTreeMap<String, String>, DockerfileError> {
    let (mut variables, mut bytes) = (BTreeMap::new(), 0);
    for name in ["TARGETPLATFORM", "BUILDPLATFORM", "TARGETOS", "BUILDOS", "TARGETARCH", "BUILDARCH"] {
        variables.extend(automatic(name).map(|value| (name.to_owned(), value)));
    }
    for arg in &file.global_args {
        let find = |name: &str| variables.get(name).cloned();
        let value = value_of(arg, args, None, file.escape, &find)?;
        count_bytes(&mut bytes, arg, value.as_deref())?;
        variables.extend(value.map(|value| (arg.name.clone(), value)));
        check_number(arg.line, "variables of ARG", variables.len(), MAX_VARIABLES)?;
    }
    Ok(variables)
}

fn value_of(
    arg: &Arg,
    given: &BuildArgs,
    global: Option<&BTreeMap<String, String>>,
    escape: char,
    find: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, DockerfileError> {
    if let Some(value) = given.get(&arg.name) {
        return Ok(Some(value.clone()));
    }
    match &arg.default {
        Some(default) => {
            let expanded = expand(default, escape, find);
            expanded.map(Some).map_err(|message| DockerfileError::new(arg.line, message))
        }
        None => Ok(global.and_then(|global| global.get(&arg.name).cloned()).or_else(|| automatic(&arg.name))),
    }
}

/// Adds a build argument to the bytes of those before it. Each step has a copy of all.
fn count_bytes(bytes: &mut usize, arg: &Arg, value: Option<&str>) -> Result<(), DockerfileError> {
    *bytes += value.map_or(0, |value| arg.name.len() + value.len() + 2);
    if *bytes > MAX_ENV_BYTES {
        let message = format!("the build arguments have more than {MAX_ENV_BYTES} bytes");
        return Err(DockerfileError::new(arg.line, message));
    }
    Ok(())
}

fn check_number(line: usize, what: &str, number: usize, most: usize) -> Result<(), DockerfileError> {
    if number <= most {
        return Ok(());
    }
    Err(DockerfileError::new(line, format!("the Dockerfile has more than {most} {what}")))
}

fn plan(file: &Dockerfile, given: &BuildArgs, base: ImageSettings) -> Result<Plan, DockerfileError> {
    let global = global_variables(file, given)?;
    let predefined =
        PREDEFINED.iter().filter_map(|name| Some(((*name).to_owned(), given.get(*name)?.clone())));
    let mut planner = Planner {
        escape: file.escape,
        given,
        global,
        args: predefined.collect(),
        arg_bytes: 0,
        step_env: None,
        step_env_bytes: 0,
        sources: 0,
        expanded_bytes: Cell::new(0),
        settings: base,
        shell: DEFAULT_SHELL.map(str::to_owned).to_vec(),
        has_own_cmd: false,
        directories: Vec::new(),
        steps: Vec::new(),
    };
    let mut last = None;
    for instruction in &file.instructions {
        planner.add(instruction)?;
        last = Some(instruction);
    }
    if !planner.directories.is_empty()
        && let Some(instruction) = last
    {
        planner.step(instruction, Work::Nothing);
    }
    let declared: BTreeSet<&str> = file
        .global_args
        .iter()
        .chain(file.instructions.iter().flat_map(|instruction| match &instruction.kind {
            Kind::Args(args) => args.as_slice(),
            _ => &[],
        }))
        .map(|arg| arg.name.as_str())
        .chain(PREDEFINED)
        .collect();
    let unused_args = given.keys().filter(|name| !declared.contains(name.as_str())).cloned().collect();
    Ok(Plan { steps: planner.steps, settings: planner.settings, unused_args })
}

struct Planner<'a> {
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
    settings: ImageSettings,
    shell: Vec<String>,
    /// Whether a `CMD` precedes.
    has_own_cmd: bool,
    /// Of `WORKDIR`s since the last step.
    directories: Vec<String>,
    steps: Vec<Step>,
}

impl Planner<'_> {
    fn add(&mut self, instruction: &Instruction) -> Result<(), DockerfileError> {
        match &instruction.kind {
            Kind::Args(args) => self.declare(args),
            Kind::Run(command) => {
                let run = Run {
                    argv: self.argv(command),
                    env: self.step_env(instruction.line)?,
                    workdir: self.settings.workdir.clone().unwrap_or_else(|| "/".to_owned()),
                    user: self.settings.user.clone(),
                };
                self.step(instruction, Work::Run(run));
                Ok(())
            }
            Kind::Copy { .. } => {
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
        let all: BTreeMap<_, _> = self.args.clone().into_iter().chain(self.settings.env.clone()).collect();
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
            Kind::Env(pairs) => {
                // All values are expanded with the variables before this line.
                let pairs = self.expand_pairs(line, pairs)?;
                self.step_env = None;
                for (name, value) in pairs {
                    set(&mut self.settings.env, name, value);
                    check_number(line, "variables of ENV", self.settings.env.len(), MAX_VARIABLES)?;
                }
                self.check_env(line)?;
            }
            Kind::Labels(pairs) => {
                let pairs = self.expand_pairs(line, pairs)?;
                self.settings.labels.extend(pairs);
            }
            Kind::Workdir(path) => {
                let path = self.absolute(&self.expand(line, path)?);
                self.settings.workdir = Some(path.clone());
                self.directories.push(path);
            }
            Kind::User(user) => {
                let user = self.user(line, user)?;
                self.settings.user = Some(user).filter(|user| user != "root" && user != "0");
            }
            Kind::Expose(ports) => {
                for port in ports {
                    let port = port_of(&self.expand(line, port)?);
                    let port = port.map_err(|message| DockerfileError::new(line, message))?;
                    self.settings.exposed.insert(port);
                }
            }
            Kind::Shell(words) => self.shell.clone_from(words),
            Kind::Cmd(command) => {
                self.settings.cmd = Some(self.argv(command)).filter(|argv| !argv.is_empty());
                self.has_own_cmd = true;
            }
            Kind::Entrypoint(command) => {
                self.settings.entrypoint = Some(self.argv(command));
                // As in other builders: a command of the base belongs to its entry point.
                if !self.has_own_cmd {
                    self.settings.cmd = None;
                }
            }
            Kind::Args(_) | Kind::Run(_) | Kind::Copy { .. } => {}
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
        self.steps.push(Step { line, text, directories, work });
    }

    fn copy(&mut self, instruction: &Instruction) -> Result<Copy, DockerfileError> {
        let line = instruction.line;
        let Kind::Copy { sources, destination, owner, mode, extracts } = &instruction.kind else {
            return Err(DockerfileError::new(line, "not a COPY"));
        };
        self.sources += sources.len();
        check_number(line, "sources of COPY and ADD", self.sources, MAX_SOURCES)?;
        let source = |source: &RawSource| match source {
            RawSource::Path(path) => Ok(Source::Path(self.expand(line, path)?)),
            RawSource::Inline { name, content, expands } => {
                let content = if *expands { self.expand_document(line, content)? } else { content.clone() };
                Ok(Source::Inline { name: name.clone(), content })
            }
        };
        let sources: Vec<Source> = sources.iter().map(source).collect::<Result<_, _>>()?;
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
        let owner = owner.as_ref().map(|owner| self.expand(line, owner)).transpose()?;
        let owner = owner.filter(|owner| !["root", "0", "root:root", "0:0"].contains(&owner.as_str()));
        Ok(Copy { sources, destination, owner, mode: mode.transpose()?, extracts: *extracts })
    }

    /// `ENV` takes precedence over build arguments.
    fn variable(&self, name: &str) -> Option<String> {
        let env = self.settings.env.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        env.or_else(|| self.args.get(name)).cloned()
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

    /// Only variables: quotes are part of the content.
    fn expand_document(&self, line: usize, content: &str) -> Result<String, DockerfileError> {
        let quoted = content.replace('\\', r"\\").replace('"', "\\\"").replace(r"\\$", r"\$");
        self.expand(line, &format!("\"{}\"", if self.escape == '\\' { &quoted } else { content }))
    }

    fn absolute(&self, path: &str) -> String {
        normalized(self.settings.workdir.as_deref().unwrap_or("/"), path)
    }

    fn argv(&self, command: &Command) -> Vec<String> {
        match command {
            Command::Exec(words) => words.clone(),
            Command::Shell(text) if text.is_empty() => Vec::new(),
            Command::Shell(text) => [self.shell.as_slice(), std::slice::from_ref(text)].concat(),
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

fn set(env: &mut Vec<(String, String)>, name: String, value: String) {
    match env.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => env.push((name, value)),
    }
}

/// An absolute path without `.`, `..` and repeated slashes.
fn normalized(workdir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let below = if path.starts_with('/') { "" } else { workdir };
    for part in below.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// `PORT/PROTOCOL`.
fn port_of(text: &str) -> Result<String, String> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    let is_known = match ports.split_once('-') {
        Some((first, last)) => is_port(first) && is_port(last),
        None => is_port(ports),
    };
    if is_known && ["tcp", "udp", "sctp"].contains(&protocol.to_ascii_lowercase().as_str()) {
        return Ok(format!("{ports}/{}", protocol.to_ascii_lowercase()));
    }
    Err(format!("EXPOSE has '{text}'; allowed: a port such as 8080, 8080/udp or 8000-8010"))
}

#[cfg(test)]
mod tests;
