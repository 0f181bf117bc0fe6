//! The isolation backends of this host, by the configuration and what is installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::Isolation;
use driver_host::{Backend, Backends};
use driver_native::Native;
use driver_oci::{Gvisor, GvisorError, OLDEST_RELEASE, OciRuntime};
use rules::IsolationPolicy;

use super::find_program;
use crate::config::Config;

const LAUNCHER: &str = "sandbox-launcher";
const RUNSC: &str = "runsc";
/// The program of an isolation that the operator leaves to the service.
const AUTO: &str = "auto";
/// Runtimes that build the same containers, but slower.
const SUBSTITUTES: [&str; 2] = ["runc", "crun"];

/// What builds containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Builder {
    /// This service itself, with the program at this path.
    Launcher(PathBuf),
    /// An OCI runtime.
    Runtime(PathBuf),
}

impl Builder {
    pub fn of(config: &Config) -> Result<Self> {
        match config.isolation.container.program.as_str() {
            AUTO => {
                let launcher = launcher(&super::agent(config)?);
                launcher.map(Self::Launcher).or_else(|error| substitute().map(Self::Runtime).ok_or(error))
            }
            path => find_program(path).map(Self::Runtime).with_context(|| {
                format!("isolation.container.program is '{path}', but there is no such program")
            }),
        }
    }

    /// Whether the launcher is missing, and a runtime is used in its place.
    pub fn is_substitute(&self, config: &Config) -> bool {
        config.isolation.container.program == AUTO && matches!(self, Self::Runtime(_))
    }

    fn backend(self, config: &Config) -> Result<Box<dyn Backend>> {
        if self.is_substitute(config) {
            tracing::warn!(
                ?self,
                "sandbox-launcher is not installed beside sandbox-agent; creating sandboxes takes longer"
            );
        }
        Ok(match self {
            Self::Launcher(program) => Box::new(Native::new(program)?),
            Self::Runtime(program) => {
                Box::new(OciRuntime::new(program, config.isolation.container.args.clone()))
            }
        })
    }
}

/// What there is of gVisor.
#[derive(Debug)]
pub enum InstalledGvisor {
    /// The configuration does without it.
    Off,
    Missing,
    Unusable(GvisorError),
    Usable(Gvisor),
}

impl InstalledGvisor {
    pub fn of(config: &Config) -> Self {
        let own = &config.isolation.gvisor;
        let found = match own.program.as_str() {
            "off" => return Self::Off,
            AUTO => places(config),
            path => find_program(path).into_iter().collect(),
        };
        let mut unusable = None;
        for program in found {
            match Gvisor::new(program, own.args.clone()) {
                Ok(gvisor) => return Self::Usable(gvisor),
                Err(error) => {
                    unusable.get_or_insert(error);
                }
            }
        }
        unusable.map_or(Self::Missing, Self::Unusable)
    }

    /// Why sandboxes cannot run under it, or `None` if they can.
    pub fn lack(&self) -> Option<MissingIsolation> {
        let (cause, reason) = match self {
            Self::Usable(_) => return None,
            Self::Off => (Cause::Configuration, "off by isolation.gvisor.program".to_owned()),
            Self::Missing => (Cause::Host, "not installed".to_owned()),
            Self::Unusable(error) => (Cause::Host, error.to_string()),
        };
        let remedy = match cause {
            Cause::Configuration => "set isolation.gvisor.program to \"auto\"".to_owned(),
            Cause::Host => format!(
                "install runsc of {} or later, by 'apt-get install runsc' on Debian 13, by './dev setup' in the source tree, or as \
                 the page about installation on gvisor.dev says",
                OLDEST_RELEASE / 10_000
            ),
        };
        Some(MissingIsolation { isolation: Isolation::Gvisor, cause, reason, remedy })
    }
}

/// What decides that an isolation is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    Configuration,
    Host,
}

/// An isolation that sandboxes of this daemon cannot have. `serve` and `doctor` report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingIsolation {
    pub isolation: Isolation,
    pub cause: Cause,
    pub reason: String,
    /// What an operator does to have it.
    pub remedy: String,
}

impl MissingIsolation {
    /// No container is built below a minimum of gVisor.
    fn container() -> Self {
        Self {
            isolation: Isolation::Container,
            cause: Cause::Configuration,
            reason: "weaker than isolation.minimum".to_owned(),
            remedy: "set isolation.minimum to \"container\", or both isolation.default and isolation.minimum to \"gvisor\"".to_owned(),
        }
    }

    /// Logs it: a warning unless the operator chose so.
    pub fn log(&self) {
        let Self { isolation, cause, reason, remedy } = self;
        match cause {
            Cause::Host => {
                tracing::warn!(%isolation, reason, remedy, "sandboxes cannot have this isolation on this host");
            }
            Cause::Configuration => {
                tracing::info!(%isolation, reason, "the configuration does without this isolation");
            }
        }
    }
}

/// Where gVisor may be installed: beside the agent, and on the path.
fn places(config: &Config) -> Vec<PathBuf> {
    let beside = super::agent(config).ok().map(|agent| agent.with_file_name(RUNSC));
    beside.filter(|path| path.is_file()).into_iter().chain(find_program(RUNSC)).collect()
}

/// The backends of this host, and who gets which.
pub struct Isolations {
    pub backends: Backends,
    pub policy: Arc<IsolationPolicy>,
    pub missing: Vec<MissingIsolation>,
}

impl Isolations {
    /// Fails if the configuration requires one that this host lacks.
    pub fn of(config: &Config) -> Result<Self> {
        let mut backends = Backends::new();
        let mut missing = Vec::new();
        // With gVisor as the minimum no container is ever built.
        if config.isolation.minimum <= Isolation::Container {
            backends.insert(Isolation::Container, Builder::of(config)?.backend(config)?);
        } else {
            missing.push(MissingIsolation::container());
        }
        let gvisor = InstalledGvisor::of(config);
        missing.extend(gvisor.lack());
        if let InstalledGvisor::Usable(gvisor) = gvisor {
            backends.insert(Isolation::Gvisor, Box::new(gvisor));
        }
        let available: Vec<Isolation> = backends.keys().copied().collect();
        refuse_missing(config, &missing)?;
        let policy = config.isolation.policy(available);
        Ok(Self { backends, policy: Arc::new(policy), missing })
    }
}

/// Fails as [`Isolations::of`] does if the configuration names a program or an isolation that this host lacks. Builds nothing.
pub fn check(config: &Config) -> Result<()> {
    let own = &config.isolation;
    let mut missing = Vec::new();
    if own.minimum > Isolation::Container {
        missing.push(MissingIsolation::container());
    } else if own.container.program != AUTO {
        Builder::of(config)?;
    }
    if own.named().iter().any(|(_, named)| *named == Isolation::Gvisor) {
        missing.extend(InstalledGvisor::of(config).lack());
    }
    refuse_missing(config, &missing)
}

fn refuse_missing(config: &Config, missing: &[MissingIsolation]) -> Result<()> {
    for (key, named) in config.isolation.named() {
        if let Some(MissingIsolation { reason, remedy, .. }) = missing.iter().find(|it| it.isolation == named)
        {
            bail!("{key} is '{named}', which sandboxes here cannot have: {reason}; {remedy}");
        }
    }
    Ok(())
}

/// An installed runtime. An upgrade that installs only the programs of earlier versions must not stop the service.
fn substitute() -> Option<PathBuf> {
    SUBSTITUTES.iter().find_map(|name| find_program(name))
}

/// The launcher is installed beside the agent.
fn launcher(agent: &Path) -> Result<PathBuf> {
    let path = agent.with_file_name(LAUNCHER);
    path.canonicalize()
        .with_context(|| format!("there is no launcher at {}; build it with './dev build'", path.display()))
}
