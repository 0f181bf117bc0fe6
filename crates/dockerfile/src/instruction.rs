//! A Dockerfile as its stages and instructions. Words are not expanded yet.

/// A Dockerfile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dockerfile {
    pub(crate) escape: char,
    /// `ARG`s before `FROM`.
    pub(crate) global_args: Vec<Arg>,
    /// At least one.
    pub(crate) stages: Vec<ParsedStage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParsedStage {
    pub from: From,
    /// Of `AS`.
    pub name: Option<String>,
    pub instructions: Vec<Instruction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct From {
    pub line: usize,
    pub image: String,
    pub platform: Option<String>,
}

/// An instruction of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub line: usize,
    /// For the log.
    pub text: String,
    pub kind: InstructionKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arg {
    pub line: usize,
    pub name: String,
    pub default: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstructionKind {
    Args(Vec<Arg>),
    Env(Vec<(String, String)>),
    Labels(Vec<(String, String)>),
    Run {
        command: CommandForm,
        /// Whether it has a mount for a cache, which is left out.
        has_cache_mount: bool,
    },
    Copy {
        sources: Vec<RawSource>,
        destination: String,
        owner: Option<String>,
        mode: Option<String>,
        extracts: bool,
        /// A stage or something else that has the sources, instead of the context.
        from: Option<String>,
    },
    Workdir(String),
    User(String),
    Expose(Vec<String>),
    Cmd(CommandForm),
    Entrypoint(CommandForm),
    Shell(Vec<String>),
    /// An instruction for stages above the result.
    OnBuild(String),
    Volume,
    HealthCheck,
    StopSignal,
    Maintainer,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CommandForm {
    /// For the shell.
    Shell(String),
    Exec(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RawSource {
    Path(String),
    /// A here-document.
    Inline {
        name: String,
        content: String,
        expands: bool,
    },
}
