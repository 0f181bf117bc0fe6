//! What a start would refuse, and what would work otherwise than the operator expects, beyond the ranges of single settings: the programs
//! and files that the configuration names, and names of images. `config check` and `serve` report the same.
//!
//! Only reads. A program that the configuration does not name is left to `doctor`, so that a check needs no host that could run sandboxes.

mod accounts;
mod certificate;
mod images;
mod own_secrets;
mod plain_ports;
mod private_files;

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use image::Catalogue;
use rules::{Capacity, Host, Overcommit, mistyped};

use crate::app::isolation;
use crate::config::{self, Config, Problem, Problems, Tls};
use crate::logs;

pub use accounts::{unknown as unknown_accounts, unknown_account};
pub use certificate::warnings as certificate_warnings;
pub use own_secrets::{ExposedSecret, close as close_own_secrets, exposed as exposed_own_secrets};
pub use private_files::{ExposedFile, exposed_files};

/// The crates of this program that log, as filters name them.
const LOG_TARGETS: [&str; 29] = [
    "admission",
    "archive",
    "base",
    "builder",
    "dockerfile",
    "driver",
    "driver_host",
    "driver_native",
    "driver_oci",
    "e2b",
    "egress",
    "engine",
    "guest_proto",
    "image",
    "listen",
    "mcp",
    "native",
    "net",
    "netlink",
    "permits",
    "reader",
    "relay",
    "rootfs",
    "rules",
    "sandboxd",
    "sandboxd_api",
    "service",
    "store",
    "tarball",
];
/// A shorter target is too close to the names of libraries, such as `h2`.
const SHORTEST_TARGET: usize = 5;

/// The findings, with the lines of the file.
#[derive(Debug)]
pub struct StartCheck {
    /// What a start refuses.
    pub errors: Result<(), Problems>,
    pub warnings: Result<(), Problems>,
}

impl StartCheck {
    /// Of a configuration whose values are in their ranges. `file` is where it is from.
    pub fn of(config: &Config, file: Option<&Path>) -> Self {
        let located = |found: Result<(), Problems>| match file {
            Some(file) => found.map_err(|problems| config::locate(problems, file)),
            None => found,
        };
        let warnings = warnings(config, file).into_iter().map(|message| Problem { line: None, message });
        Self { errors: located(errors(config)), warnings: located(Problems::check(warnings.collect())) }
    }

    /// Logs the warnings. Fails with the errors.
    pub fn report(self) -> Result<(), Problems> {
        if let Err(warnings) = self.warnings {
            for line in warnings.lines() {
                tracing::warn!("{line}");
            }
        }
        self.errors
    }
}

fn errors(config: &Config) -> Result<(), Problems> {
    let mut checks = unreadable_files(config);
    // What is in the files, if they are there.
    if checks.is_empty() {
        checks.extend([certificate_and_key(config), credentials(config), secret(config)]);
    }
    checks.extend(config.images.named.iter().map(|(name, sources)| {
        Catalogue::default().set(name, sources).with_context(|| format!("images.\"{name}\""))
    }));
    checks.push(isolation::check(config));
    Problems::of(checks)
}

fn unreadable_files(config: &Config) -> Vec<Result<()>> {
    let error = |(key, path): (&'static str, &Path)| {
        let error = File::open(path).err()?;
        Some(Err(anyhow!("{key} is '{}', which cannot be read: {error}", path.display())))
    };
    config.named_files().into_iter().filter_map(error).collect()
}

fn certificate_and_key(config: &Config) -> Result<()> {
    let http = &config.http;
    if http.tls != Tls::Files {
        return Ok(());
    }
    let own = listen::TlsConfig::Own { certificate: http.tls_cert.clone(), key: http.tls_key.clone() };
    let Err(error) = listen::Tls::load(own) else { return Ok(()) };
    let is_of_key = http.tls_key != http.tls_cert && error.file() == Some(&*http.tls_key);
    let key = if is_of_key { "http.tls_key" } else { "http.tls_cert" };
    bail!("{key}: {error}")
}

fn credentials(config: &Config) -> Result<()> {
    let path = &config.images.credentials;
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    image::check_credentials(path).context("images.credentials")
}

/// A start makes the secret that the operator does not name.
fn secret(config: &Config) -> Result<()> {
    let snapshots = &config.snapshots;
    if snapshots.secret_file.as_os_str().is_empty() || snapshots.location()?.is_none() {
        return Ok(());
    }
    snapshots.secrets(&config.data_dir).map(drop)
}

fn warnings(config: &Config, file: Option<&Path>) -> Vec<String> {
    let mut warnings = private_files::warnings(config, file);
    warnings.extend(own_secrets::warnings(&config.data_dir));
    warnings.extend(certificate::warnings(config));
    warnings.extend(plain_ports::warning(config));
    warnings.extend(images::unknown(config));
    warnings.extend(accounts::unknown(config));
    warnings.extend(small_capacity(config));
    warnings.extend(log_targets("log.level", &config.log.level));
    warnings
}

/// A configured capacity that is too small for any sandbox.
fn small_capacity(config: &Config) -> Vec<String> {
    let own = &config.capacity;
    let host = Host { cpu: own.cpu, memory_mb: own.memory_mb, disk_mb: own.disk_mb };
    let overcommit =
        Overcommit { cpu: own.overcommit_cpu, memory: own.overcommit_memory, disk: own.overcommit_disk };
    let (all, least) = (Capacity::new(host, overcommit), config.resources.minimum);
    let rows = [
        ("cpu", own.cpu, all.cpu, least.cpu),
        ("memory_mb", own.memory_mb, all.memory_mb, least.memory_mb),
        ("disk_mb", own.disk_mb, all.disk_mb, least.disk_mb),
    ];
    // 0 is the host's.
    let too_small = rows.into_iter().filter(|(_, own, all, least)| *own > 0 && *all < u64::from(*least));
    let message = |(key, own, all, least): (&str, u64, u64, u32)| {
        format!(
            "capacity.{key} is {own}, {all} with overcommit: no sandbox can be created, because the smallest needs {least}"
        )
    };
    too_small.map(message).collect()
}

/// Warnings about the level in the variable, which is in no file.
pub fn warnings_of_variable(level: Option<&str>) -> Vec<String> {
    level.map(|level| log_targets(logs::VARIABLE, level)).unwrap_or_default()
}

/// Targets that are almost a crate of this program. Others can be libraries. `key` is where the level is from.
fn log_targets(key: &str, level: &str) -> Vec<String> {
    let names = level.split(',').filter_map(|directive| {
        let target = directive.trim().split(['=', '[']).next()?;
        target.split("::").next().filter(|name| name.len() >= SHORTEST_TARGET && directive.contains('='))
    });
    let meant = |name: &str| mistyped(name, &LOG_TARGETS).filter(|_| !LOG_TARGETS.contains(&name));
    let message = |(name, meant): (&str, &str)| {
        format!("{key} is '{level}', whose target '{name}' logs nothing; did you mean '{meant}'?")
    };
    names.filter_map(|name| Some((name, meant(name)?))).map(message).collect()
}

#[cfg(test)]
mod tests;
