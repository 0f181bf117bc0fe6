//! The configuration: flags override the environment, which overrides the file, which overrides defaults.
//!
//! A setting is declared once, in the module of its table or in `settings`; `declare` says how. An unknown key is an error that names
//! the most similar key: a mistyped limit must not silently be off. [`load`] reports all errors that it finds, as [`Problems`].

mod capacity;
mod declare;
mod e2b;
mod egress;
mod http;
mod images;
mod isolation;
mod keys;
mod limits;
mod log;
mod mcp;
mod paths;
mod ports;
mod prices;
mod problems;
mod quotas;
mod reference;
mod resources;
mod runtime;
mod settings;
mod snapshots;
#[cfg(test)]
mod tests;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, ensure};
use api::Isolation;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use toml::Spanned;
use toml::de::{DeTable, Deserializer};

use crate::cli::{Addresses, Global, ServeArguments};
use crate::first_key::LOCAL_ACCOUNT;

pub use self::egress::NetworkKind;
pub use self::http::{Http, Tls};
pub use self::log::{Log, LogFormat, check_log_level};
use declare::DeclaredTable;
use isolation::{ContainerTable, GvisorTable};
pub use limits::Limits;
pub use ports::Ports;
pub use problems::{Problem, Problems};
#[cfg(test)]
pub use quotas::AccountQuotas;
pub use reference::reference;
use runtime::Runtime;
pub use settings::Config;

const DEFAULT_FILE: &str = "/etc/sandboxd/config.toml";

/// The file that is read. `None`: there is none, and the defaults apply.
pub fn file(global: &Global) -> Option<&Path> {
    let usual = || Some(Path::new(DEFAULT_FILE)).filter(|path| path.exists());
    global.config.as_deref().or_else(usual)
}

/// Reads and checks the configuration.
pub fn load(global: &Global) -> Result<Config, Problems> {
    let Some(file) = file(global) else { return complete(Config::default(), global) };
    read(file).and_then(|config| complete(config, global)).map_err(|problems| locate(problems, file))
}

/// Adds the file, and the lines of the keys that the errors name.
pub fn locate(problems: Problems, file: &Path) -> Problems {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    problems.at_lines(|message| keys::line_of_message(&text, message)).in_file(file)
}

/// Adds the flags and checks everything.
fn complete(mut config: Config, global: &Global) -> Result<Config, Problems> {
    for (flag, value) in [(&global.data_dir, &mut config.data_dir), (&global.run_dir, &mut config.run_dir)] {
        if let Some(path) = flag {
            *value = std::path::absolute(path).map_err(Problems::one)?;
        }
    }
    config.isolate_instance();
    config.adopt_runtime().map_err(Problems::one)?;
    config.check()?;
    Ok(config)
}

impl Config {
    /// Two services on one host share nothing: one with another data directory also has another run directory and cgroup, because
    /// each would remove the other's sandboxes as orphans.
    fn isolate_instance(&mut self) {
        let defaults = Self::default();
        if self.data_dir == defaults.data_dir {
            return;
        }
        let dir = self.data_dir.canonicalize().unwrap_or_else(|_| self.data_dir.clone());
        let digest = Sha256::digest(dir.as_os_str().as_bytes());
        let tag: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        if self.run_dir == defaults.run_dir {
            self.run_dir = format!("{}-{tag}", defaults.run_dir.display()).into();
        }
        if self.runtime.cgroup_parent == defaults.runtime.cgroup_parent {
            self.runtime.cgroup_parent = format!("{}-{tag}", defaults.runtime.cgroup_parent);
        }
    }

    /// Takes over the settings of earlier versions, in which one runtime built all sandboxes: `runtime.path` and `runtime.args`.
    fn adopt_runtime(&mut self) -> Result<()> {
        let Runtime { path, args, .. } = &self.runtime;
        let (path, args) = (path.clone(), args.clone());
        let usual = Runtime::default();
        if path == usual.path && args == usual.args {
            return Ok(());
        }
        let own = &mut self.isolation;
        if is_runsc(&path) {
            let gvisor = GvisorTable::default();
            ensure!(
                own.gvisor.program == gvisor.program && own.gvisor.args == gvisor.args,
                "runtime.path and isolation.gvisor.program are set; remove runtime.path and runtime.args"
            );
            (own.gvisor.program, own.gvisor.args) = (path, args);
            (own.default, own.minimum) = (Isolation::Gvisor, Isolation::Gvisor);
        } else {
            let container = ContainerTable::default();
            ensure!(
                own.container.program == container.program && own.container.args == container.args,
                "runtime.path and isolation.container.program are set; remove runtime.path and runtime.args"
            );
            (own.container.program, own.container.args) = (path, args);
        }
        Ok(())
    }

    /// Overrides addresses with those of flags or variables, and names these in errors: the file is right without them.
    pub fn with_addresses(mut self, addresses: &Addresses) -> Result<Self, Problems> {
        let mut sources = Vec::new();
        for (source, given, value) in [
            ("--listen or SANDBOXD_LISTEN", &addresses.listen, &mut self.http.listen),
            (
                "--redirect-listen or SANDBOXD_REDIRECT_LISTEN",
                &addresses.redirect_listen,
                &mut self.http.redirect_listen,
            ),
            (
                "--metrics-listen or SANDBOXD_METRICS_LISTEN",
                &addresses.metrics_listen,
                &mut self.metrics.listen,
            ),
        ] {
            if let Some(address) = given {
                value.clone_from(address);
                sources.push(source);
            }
        }
        match self.check() {
            Ok(()) => Ok(self),
            Err(problems) if sources.is_empty() => Err(problems),
            Err(problems) => Err(problems.with_label(&format!("with {}", sources.join(", ")))),
        }
    }

    /// Overrides values with the flags of `serve`.
    pub fn with_flags(mut self, flags: &ServeArguments) -> Result<Self> {
        self = self.with_addresses(&flags.addresses)?;
        self.e2b.enabled |= flags.e2b;
        for pattern in &flags.allow_images {
            self.images.allow_for(LOCAL_ACCOUNT, pattern);
        }
        if flags.no_rate_limits {
            self.limits.lift_rates();
        }
        self.check()?;
        Ok(self)
    }
}

fn is_runsc(program: &str) -> bool {
    program.rsplit('/').next().is_some_and(|name| name.starts_with("runsc"))
}

fn read(path: &Path) -> Result<Config, Problems> {
    let cannot_read = |error: std::io::Error| Problems::one(format_args!("cannot be read: {error}"));
    let text = std::fs::read_to_string(path).map_err(cannot_read)?;
    let file = std::path::absolute(path).map_err(cannot_read)?;
    let mut config = parse(&text)?;
    config.resolve_paths(file.parent().unwrap_or(&file));
    Ok(config)
}

fn parse(text: &str) -> Result<Config, Problems> {
    let given = DeTable::parse(text).map_err(|error| Problems::from(keys::of_syntax(text, &error)))?;
    let file = Config::declaration();
    let mut problems = keys::compare(text, given.get_ref(), &file);
    if problems.is_empty() {
        return settings(text, &given, &file);
    }
    // Values of the other tables do not depend on the wrong ones.
    let mut others = given.clone();
    for (name, value) in given.get_ref() {
        let alone = DeTable::from_iter([(name.clone(), value.clone())]);
        if !keys::compare(text, &alone, &file).is_empty() {
            let name: &str = name.get_ref();
            others.get_mut().remove(name);
        }
    }
    let checked = settings(text, &others, &file).and_then(|config| config.check());
    problems.extend(checked.err().into_iter().flatten());
    Err(Problems::from_list(problems))
}

/// Reads the settings. If their types refuse values, such as words outside a set, all of them are reported, and what is wrong in other
/// tables.
fn settings(text: &str, given: &Spanned<DeTable<'_>>, file: &DeclaredTable) -> Result<Config, Problems> {
    let read = |table: &Spanned<DeTable<'_>>| Config::deserialize(Deserializer::from(table.clone()));
    let (mut accepted, mut others) = (given.clone(), given.clone());
    let mut problems = Vec::new();
    while let Err(error) = read(&accepted) {
        problems.push(keys::of_value(text, given.get_ref(), file, &error));
        let removed = error.span().and_then(|span| keys::remove_value(accepted.get_mut(), span.start));
        let Some(table) = removed else { break };
        // Its other values can depend on the refused one.
        others.get_mut().remove(table.as_str());
    }
    if !problems.is_empty()
        && let Ok(config) = read(&others)
        && let Err(more) = config.check()
    {
        problems.extend(more);
    }
    Problems::check(problems)?;
    read(&accepted).map_err(Problems::one)
}
