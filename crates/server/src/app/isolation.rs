//! The isolation backends of this host, by the configuration and what is installed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use api::Isolation;
use driver_host::{Backend, Backends};
use driver_native::Native;
use driver_oci::{Gvisor, GvisorError, OciRuntime};
use rules::IsolationPolicy;

use super::find_program;
use crate::config::Config;

const LAUNCHER: &str = "sandbox-launcher";
const RUNSC: &str = "runsc";
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
            "auto" => {
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
        config.isolation.container.program == "auto" && matches!(self, Self::Runtime(_))
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
            "auto" => places(config),
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
}

impl Isolations {
    /// Fails if the configuration requires one that this host lacks.
    pub fn of(config: &Config) -> Result<Self> {
        let mut backends = Backends::new();
        // With gVisor as the minimum no container is ever built.
        if config.isolation.minimum <= Isolation::Container {
            backends.insert(Isolation::Container, Builder::of(config)?.backend(config)?);
        }
        let mut reason = "run 'sandboxd doctor' to see why".to_owned();
        match InstalledGvisor::of(config) {
            InstalledGvisor::Usable(gvisor) => {
                backends.insert(Isolation::Gvisor, Box::new(gvisor));
            }
            InstalledGvisor::Unusable(error) => {
                tracing::warn!(%error, "sandboxes under gVisor are not available");
                reason = error.to_string();
            }
            InstalledGvisor::Off | InstalledGvisor::Missing => {}
        }
        let available: Vec<Isolation> = backends.keys().copied().collect();
        let policy = config.isolation.policy(available.clone());
        if let Some(missing) = policy.named().find(|named| !available.contains(named)) {
            bail!("[isolation] in the configuration names '{missing}', which this host lacks: {reason}");
        }
        Ok(Self { backends, policy: Arc::new(policy) })
    }
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
