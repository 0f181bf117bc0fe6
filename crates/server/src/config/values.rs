//! Every setting, its default and its bounds.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Disks, images and records; survives a reboot.
    pub data_dir: PathBuf,
    /// Sockets and the state of running sandboxes; on a file system that a reboot empties.
    pub run_dir: PathBuf,
    pub limits: Limits,
    pub capacity: Capacity,
    pub runtime: Runtime,
    pub retention: Retention,
    /// Sources of an image, tried in order. Names of the default catalogue may be given other sources.
    pub images: BTreeMap<String, Vec<String>>,
    /// Sandboxes kept ready, by image.
    pub pool: BTreeMap<String, u32>,
}

/// What one sandbox may do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub concurrent_executions: u32,
    pub execution_queue: u32,
    /// Kept of each stream of a buffered command.
    pub max_output_bytes: usize,
}

/// What the sandboxes together may have. 0 means what the host has; an overcommit factor gives it away so many times.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Capacity {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
    pub overcommit_cpu: f64,
    pub overcommit_memory: f64,
    pub overcommit_disk: f64,
}

/// The walls.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtime {
    /// Program of an OCI runtime; "auto" takes the first of runc, crun and runsc that is there.
    pub path: String,
    /// Its arguments before the verb.
    pub args: Vec<String>,
    /// The static agent; "auto" takes the one beside this program.
    pub agent: String,
    /// Parent of all sandboxes' cgroups.
    pub cgroup_parent: String,
    /// First host user id for sandboxes. Each takes 65,536 from here upwards.
    pub uid_base: u32,
    /// How many such ranges there are.
    pub uid_slots: u32,
    /// Processes and threads of one sandbox.
    pub pids_max: u32,
    /// A running lxcfs gives sandboxes their own memory figures: "auto", "off", or its directory.
    pub lxcfs: String,
}

/// How long things are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// A paused sandbox is then terminated; 0 keeps it for ever.
    pub paused_days: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "/var/lib/sandboxd".into(),
            run_dir: "/run/sandboxd".into(),
            limits: Limits::default(),
            capacity: Capacity::default(),
            runtime: Runtime::default(),
            retention: Retention::default(),
            images: BTreeMap::new(),
            pool: BTreeMap::new(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { concurrent_executions: 3, execution_queue: 0, max_output_bytes: 16 << 20 }
    }
}

impl Default for Capacity {
    /// Most sandboxes idle most of the time: processors and memory are given away several times over. Disk is not: one that
    /// fills its own must not fill the host's.
    fn default() -> Self {
        Self {
            cpu: 0,
            memory_mb: 0,
            disk_mb: 0,
            overcommit_cpu: 16.0,
            overcommit_memory: 8.0,
            overcommit_disk: 1.0,
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            path: "auto".to_owned(),
            args: Vec::new(),
            agent: "auto".to_owned(),
            cgroup_parent: "sandboxd".to_owned(),
            // Between what systemd gives to its containers and the upper half, where some tools fail.
            uid_base: 0x7000_0000,
            uid_slots: 3_840,
            pids_max: 1_024,
            lxcfs: "auto".to_owned(),
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { paused_days: 30 }
    }
}

impl Config {
    /// What types cannot say. Each message names the key, what it got and what is allowed.
    pub fn check(&self) -> Result<()> {
        for (key, dir) in [("data_dir", &self.data_dir), ("run_dir", &self.run_dir)] {
            ensure!(dir.is_absolute(), "{key} is '{}'; it must be an absolute path", dir.display());
        }
        let capacity = &self.capacity;
        for (key, factor) in [
            ("overcommit_cpu", capacity.overcommit_cpu),
            ("overcommit_memory", capacity.overcommit_memory),
            ("overcommit_disk", capacity.overcommit_disk),
        ] {
            ensure!(
                factor.is_finite() && factor > 0.0,
                "capacity.{key} is {factor}; it must be a number above 0"
            );
        }
        let within = |key: &str, value: u64, low: u64, high: u64| {
            ensure!((low..=high).contains(&value), "{key} is {value}; it must be {low} to {high}");
            Ok(())
        };
        within("limits.concurrent_executions", self.limits.concurrent_executions.into(), 1, 200)?;
        within("limits.execution_queue", self.limits.execution_queue.into(), 0, 10_000)?;
        within("limits.max_output_bytes", self.limits.max_output_bytes as u64, 1024, 1 << 30)?;
        within("runtime.pids_max", self.runtime.pids_max.into(), 16, 4_000_000)?;
        within("runtime.uid_base", self.runtime.uid_base.into(), 65_536, 0xFFFE_0000)?;
        let room = u64::from(u32::MAX - self.runtime.uid_base) / 65_536;
        within("runtime.uid_slots", self.runtime.uid_slots.into(), 1, room)?;
        let parent = &self.runtime.cgroup_parent;
        ensure!(
            !parent.is_empty()
                && !parent.starts_with('/')
                && !parent.split('/').any(|part| matches!(part, "" | "." | "..")),
            "runtime.cgroup_parent is '{parent}'; it must be a relative path of plain names"
        );
        Ok(())
    }
}
