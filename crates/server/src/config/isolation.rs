//! `[isolation]`: what separates sandboxes from the host, and the programs that do it.

use std::collections::BTreeMap;

use anyhow::ensure;
use api::Isolation;
use rules::{IsolationLevels, IsolationPolicy};

use super::declare::table;
use super::problems::Problems;

table! {
    /// What separates sandboxes from the host: `"container"`, or the stronger `"gvisor"`; see [isolation.md](isolation.md). A
    /// create asks for one of them or for `auto`.
    pub struct IsolationTable {
        /// What `auto` means.
        default: Isolation, "`\"container\"` or `\"gvisor\"`";
        /// Callers cannot choose a weaker one, and `auto` is never weaker.
        minimum: Isolation, "`\"container\"` or `\"gvisor\"`";
        /// `default` and `minimum` for single images, as `[isolation.images."NAME"]`. If image and account have one, the
        /// stronger counts.
        images: BTreeMap<String, Levels>, "tables";
        /// `default` and `minimum` for single accounts, as `[isolation.accounts."NAME"]`.
        accounts: BTreeMap<String, Levels>, "tables";
        container: ContainerTable;
        gvisor: GvisorTable;
    }
}

table! {
    /// Levels of one image or account. Absent ones are those of all.
    pub struct Levels {
        default: Option<Isolation>;
        minimum: Option<Isolation>;
    }
}

table! {
    /// Containers.
    pub struct ContainerTable {
        /// What builds them: `"auto"` is the service itself, with its program `sandbox-launcher`; or an OCI runtime by name or
        /// path: runc, crun or youki.
        program: String = "auto".to_owned(), "program";
        /// Arguments of the runtime before the subcommand.
        args: Vec<String>, "list of strings";
        /// Warm containers by image. `[pool]` counts for the isolation that `auto` means; if both name an image, the larger
        /// count applies.
        pool: BTreeMap<String, u32>, "table of counts" in 0..=1_000;
    }
}

table! {
    /// Sandboxes under gVisor.
    pub struct GvisorTable {
        /// gVisor's `runsc`, a release of 2024 or later. `"auto"`: in the directory of `sandboxd` or on the path; if there is
        /// none, the service has containers only.
        program: String = "auto".to_owned(), "`\"auto\"`, `\"off\"` or program";
        /// Additional arguments of `runsc` before the subcommand, such as `--platform=kvm`.
        args: Vec<String>, "list of strings";
        /// Warm sandboxes under gVisor by image. Each takes some tens of MB of memory. `pool = {}` keeps none.
        pool: BTreeMap<String, u32> = usual_pool(), "table of counts" in 0..=1_000;
    }
}

/// A pooled sandbox costs some tens of megabytes of memory, and saves a create half a second.
fn usual_pool() -> BTreeMap<String, u32> {
    ["ubuntu:24.04", "python:3.12", "node:22"].map(|image| (image.to_owned(), 1)).into()
}

impl IsolationTable {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let programs = [("container", &self.container.program), ("gvisor", &self.gvisor.program)];
        Problems::of(programs.map(|(table, program)| {
            ensure!(
                !program.is_empty(),
                "isolation.{table}.program is empty; it must be \"auto\" or a program"
            );
            Ok(())
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
