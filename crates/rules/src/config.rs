//! The configuration of a new sandbox: every default and range.
//!
//! The server passes a body whose fields have the right types (a wrong type is `INVALID_REQUEST`, decided there); a value out of
//! its range or set is a [`ConfigError`] (`INVALID_CONFIG`). Whether the catalogue has an image is decided by the catalogue.

mod checks;
pub mod error;
pub mod isolation;
mod name;
mod network;

use std::collections::BTreeMap;

use api::{CreateBody, ProcessesAtTimeout, Resources, SandboxConfig, TimeoutBody, bounds};

use crate::config::error::ConfigError;
use crate::config::isolation::IsolationRules;

pub use api::Integer;
pub use api::bounds::Range;

pub(crate) use checks::{absolute_path, env, integer, metadata};
pub(crate) use name::take_name;
pub use network::{NetworkChange, network_change};

/// Ranges and defaults of create. [`ConfigRules::default`] is the documented API; an operator may narrow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRules {
    pub cpu_allowed: Vec<u32>,
    pub cpu_default: u32,
    pub memory_mb: Range<u32>,
    pub disk_mb: Range<u32>,
    pub timeout_ms: Range<u64>,
    pub idle_timeout_ms: Range<u64>,
    pub workdir_default: String,
    pub metadata_keys_max: usize,
    pub metadata_key_chars_max: usize,
    pub metadata_value_chars_max: usize,
    pub egress_entries_max: usize,
    pub egress_networks_max: usize,
    pub ingress_ports_max: usize,
    pub isolation: IsolationRules,
}

impl Default for ConfigRules {
    fn default() -> Self {
        Self {
            cpu_allowed: bounds::CPU.to_vec(),
            cpu_default: bounds::CPU_DEFAULT,
            memory_mb: bounds::MEMORY_MB,
            disk_mb: bounds::DISK_MB,
            timeout_ms: bounds::TIMEOUT_MS,
            idle_timeout_ms: bounds::IDLE_TIMEOUT_MS,
            workdir_default: bounds::WORKDIR_DEFAULT.to_owned(),
            metadata_keys_max: bounds::METADATA_KEYS,
            metadata_key_chars_max: bounds::METADATA_KEY_CHARS,
            metadata_value_chars_max: bounds::METADATA_VALUE_CHARS,
            egress_entries_max: bounds::EGRESS_ENTRIES,
            egress_networks_max: bounds::EGRESS_NETWORKS,
            ingress_ports_max: bounds::INGRESS_PORTS,
            isolation: IsolationRules::default(),
        }
    }
}

impl ConfigRules {
    /// The rules of a service that gives less, too, than the documented API. The defaults stay.
    #[must_use]
    pub fn with_minimum(self, least: Resources) -> Self {
        let smaller = (least.cpu..).take_while(|cpu| self.cpu_allowed.iter().all(|allowed| cpu < allowed));
        let cpu_allowed = smaller.chain(self.cpu_allowed.iter().copied()).collect();
        let lowered = |range: Range<u32>, least: u32| Range { min: range.min.min(least), ..range };
        Self {
            cpu_allowed,
            memory_mb: lowered(self.memory_mb, least.memory_mb),
            disk_mb: lowered(self.disk_mb, least.disk_mb),
            ..self
        }
    }
}

/// Checks what was given and adds the defaults.
pub fn sandbox_config(body: CreateBody, rules: &ConfigRules) -> Result<SandboxConfig, ConfigError> {
    let given = body.resources.unwrap_or_default();
    let resources = Resources {
        cpu: checks::cpu(given.cpu, rules)?,
        memory_mb: integer("resources.memoryMb", given.memory_mb, rules.memory_mb)?,
        disk_mb: integer("resources.diskMb", given.disk_mb, rules.disk_mb)?,
    };
    let workdir = match body.workdir {
        Some(path) => absolute_path("workdir", path)?,
        None => rules.workdir_default.clone(),
    };
    let image = checks::image(body.image)?;
    let isolation = rules.isolation.choose(body.isolation.unwrap_or_default(), &image)?;
    Ok(SandboxConfig {
        image,
        resources,
        env: env(body.env.unwrap_or_default())?,
        workdir,
        timeout_ms: integer("timeoutMs", body.timeout_ms, rules.timeout_ms)?,
        idle_timeout_ms: integer("idleTimeoutMs", body.idle_timeout_ms, rules.idle_timeout_ms)?,
        on_timeout: body.on_timeout.unwrap_or_default(),
        processes_at_timeout: ProcessesAtTimeout::Kept,
        auto_resume: body.auto_resume.unwrap_or(true),
        metadata: name::named_metadata(body.name, body.metadata.unwrap_or_default(), rules)?,
        network: network::policy(body.network.unwrap_or_default(), rules)?,
        isolation,
        default_user: false,
        extensions: BTreeMap::new(),
    })
}

/// Checks a new timeout. Unlike the timeout of a create it may be 0.
pub fn new_timeout(body: TimeoutBody, rules: &ConfigRules) -> Result<u64, ConfigError> {
    let range = Range { min: 0, ..rules.timeout_ms };
    integer("timeoutMs", Some(body.timeout_ms), range)
}

#[cfg(test)]
mod tests;
