//! Options of a test's service. [`super::Service`] writes them as TOML.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::layout::RigLayout;
use crate::options::SLOTS;

/// The rate limits, by the first part of their keys.
const RATES: [&str; 5] = ["read", "write", "create", "execute", "operate"];

/// Settings by table and key; values are in TOML syntax.
#[derive(Debug, Clone)]
pub struct ServiceOptions {
    tables: BTreeMap<&'static str, BTreeMap<String, String>>,
    /// Use a separate, initially empty directory of images instead of the shared one.
    pub own_images: bool,
    /// The size of a separate small disk, in megabytes.
    pub(super) disk_mb: Option<u64>,
    /// Directory of `sandboxd` and `sandbox-agent`, instead of `target/bin/`.
    pub(super) programs: Option<PathBuf>,
}

impl Default for ServiceOptions {
    /// No rate limits, capacity for any number of sandboxes, no warm pool.
    fn default() -> Self {
        let options = Self { tables: BTreeMap::new(), own_images: false, disk_mb: None, programs: None };
        let options = RATES
            .iter()
            .fold(options, |options, class| options.with("limits", &format!("{class}_per_minute"), "0"));
        options
            .with("capacity", "cpu", "100000")
            .with("capacity", "memory_mb", "100000000")
            .with("capacity", "disk_mb", "100000000")
            .with("isolation", "default", &format!("{:?}", crate::options::isolation().name()))
            .with("isolation", "gvisor.pool", "{}")
            .with("runtime", "lxcfs", "\"off\"")
            .with(
                "isolation",
                "container.program",
                &format!("{:?}", crate::options::runtime().unwrap_or_else(|| "auto".into())),
            )
            .with("log", "level", "\"info\"")
    }
}

impl ServiceOptions {
    #[must_use]
    pub fn with(mut self, table: &'static str, key: &str, value: &str) -> Self {
        self.tables.entry(table).or_default().insert(key.to_owned(), value.to_owned());
        self
    }

    /// Without a key of a table, for programs that do not know it.
    #[must_use]
    pub fn without(mut self, table: &str, key: &str) -> Self {
        if let Some(keys) = self.tables.get_mut(table) {
            keys.remove(key);
        }
        self
    }

    /// Without the table `[isolation]`, which programs before ADR 0019 do not know.
    #[must_use]
    pub fn without_isolation(mut self) -> Self {
        self.tables.remove("isolation");
        self
    }

    /// The product's default rate limits.
    #[must_use]
    pub fn default_rates(mut self) -> Self {
        for class in RATES {
            if let Some(limits) = self.tables.get_mut("limits") {
                limits.remove(&format!("{class}_per_minute"));
            }
        }
        self
    }

    /// Puts the data on a separate small disk.
    #[must_use]
    pub fn on_disk_mb(self, megabytes: u64) -> Self {
        Self { disk_mb: Some(megabytes), ..self }
    }

    /// Starts `sandboxd` in this directory, with the agent beside it. The programs may be copied there later.
    #[must_use]
    pub fn programs(self, directory: &Path) -> Self {
        Self { programs: Some(directory.to_owned()), ..self.with("runtime", "agent", "\"auto\"") }
    }

    /// The product's default capacity: that of this host.
    #[must_use]
    pub fn default_capacity(mut self) -> Self {
        self.tables.remove("capacity");
        self
    }

    /// Sets the source of an image.
    #[must_use]
    pub fn image(self, name: &str, source: &str) -> Self {
        self.with("images", &format!("\"{name}\""), &format!("[\"{source}\"]"))
    }

    pub(super) fn toml(&self, layout: &RigLayout, agent: &Path, addresses: [SocketAddr; 3]) -> String {
        let [listen, plain, metrics] = addresses;
        let mut options = self.clone();
        let text = |value: &dyn std::fmt::Display| format!("\"{value}\"");
        for (table, key, value) in [
            ("http", "listen", text(&listen)),
            ("http", "redirect_listen", text(&plain)),
            ("metrics", "listen", text(&metrics)),
            ("runtime", "agent", text(&agent.display())),
            ("runtime", "cgroup_parent", text(&layout.name)),
            ("runtime", "uid_base", layout.uid_base.to_string()),
            ("runtime", "uid_slots", SLOTS.to_string()),
        ] {
            options.tables.entry(table).or_default().entry(key.to_owned()).or_insert(value);
        }
        // An empty table overrides the default pool.
        options.tables.entry("pool").or_default();
        let mut toml = format!("data_dir = {:?}\nrun_dir = {:?}\n", canonical(&layout.data), layout.run);
        for (table, keys) in &options.tables {
            let _ = writeln!(toml, "\n[{table}]");
            for (key, value) in keys {
                let _ = writeln!(toml, "{key} = {value}");
            }
        }
        toml
    }
}

fn canonical(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
