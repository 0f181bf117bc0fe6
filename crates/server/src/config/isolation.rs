//! `[isolation]`: what separates sandboxes from the host, and the programs that do it.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use api::Isolation;
use rules::{IsolationLevels, IsolationPolicy};
use serde::{Deserialize, Serialize};

use super::bounds::within;
use super::problems::Problems;

/// Which isolation sandboxes get.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IsolationTable {
    /// What `auto` means in a create.
    pub default: Isolation,
    /// Callers cannot choose a weaker one.
    pub minimum: Isolation,
    pub images: BTreeMap<String, Levels>,
    pub accounts: BTreeMap<String, Levels>,
    pub container: ContainerTable,
    pub gvisor: GvisorTable,
}

/// Levels of one image or account; absent ones are those of all.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Levels {
    pub default: Option<Isolation>,
    pub minimum: Option<Isolation>,
}

/// Containers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerTable {
    /// Program of an OCI runtime; "auto" is the service's own launcher.
    pub program: String,
    /// Its arguments before the subcommand.
    pub args: Vec<String>,
    /// Sizes of the warm pool by image.
    pub pool: BTreeMap<String, u32>,
}

/// Sandboxes under gVisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct GvisorTable {
    /// "auto" takes an installed one, if there is one; "off" none.
    pub program: String,
    pub args: Vec<String>,
    pub pool: BTreeMap<String, u32>,
}

impl Default for ContainerTable {
    fn default() -> Self {
        Self { program: "auto".to_owned(), args: Vec::new(), pool: BTreeMap::new() }
    }
}

impl Default for GvisorTable {
    /// A pooled sandbox costs some tens of megabytes of memory, and saves a create half a second.
    fn default() -> Self {
        let pool = ["ubuntu:24.04", "python:3.12", "node:22"].map(|image| (image.to_owned(), 1));
        Self { program: "auto".to_owned(), args: Vec::new(), pool: pool.into() }
    }
}

impl IsolationTable {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let tables = [
            ("container", &self.container.program, &self.container.pool),
            ("gvisor", &self.gvisor.program, &self.gvisor.pool),
        ];
        Problems::of(tables.into_iter().flat_map(|(table, program, pool)| {
            let counts = pool.iter().map(move |(image, count)| {
                within(&format!("isolation.{table}.pool.\"{image}\""), (*count).into(), 0, 1_000)
            });
            counts.chain([check_program(table, program)])
        }))
    }

    /// Each level that the table names, with its key.
    pub fn named(&self) -> Vec<(String, Isolation)> {
        let tables = [("images", &self.images), ("accounts", &self.accounts)];
        let single = tables.into_iter().flat_map(|(table, all)| {
            all.iter().flat_map(move |(name, own)| {
                let levels = [("default", own.default), ("minimum", own.minimum)];
                let levels = levels.into_iter().filter_map(|(key, level)| Some((key, level?)));
                levels.map(move |(key, level)| (format!("isolation.{table}.\"{name}\".{key}"), level))
            })
        });
        let common = [("default", self.default), ("minimum", self.minimum)];
        let common = common.map(|(key, level)| (format!("isolation.{key}"), level));
        common.into_iter().chain(single).collect()
    }

    /// The policy on a host with these backends.
    pub fn policy(&self, available: Vec<Isolation>) -> IsolationPolicy {
        let levels = |of: &BTreeMap<String, Levels>| {
            let level = |own: &Levels| IsolationLevels { default: own.default, minimum: own.minimum };
            of.iter().map(|(name, own)| (name.clone(), level(own))).collect()
        };
        IsolationPolicy {
            available,
            default: self.default,
            minimum: self.minimum,
            images: levels(&self.images),
            accounts: levels(&self.accounts),
        }
    }
}

fn check_program(table: &str, program: &str) -> Result<()> {
    ensure!(!program.is_empty(), "isolation.{table}.program is empty; it must be \"auto\" or a program");
    Ok(())
}
