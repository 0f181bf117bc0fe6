//! The whole file, and the tables that need no module of their own. The other tables are in the module of their name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;

use super::capacity::Capacity;
use super::declare::{Setting, table};
use super::e2b::E2b;
use super::egress::Egress;
use super::http::{Http, Metrics, check_listeners};
use super::images::ImageSources;
use super::isolation::IsolationTable;
use super::limits::Limits;
use super::log::Log;
use super::mcp::Mcp;
use super::ports::Ports;
use super::prices::PriceList;
use super::problems::Problems;
use super::quotas::Quotas;
use super::resources::RequestedResources;
use super::runtime::Runtime;
use super::snapshots::SnapshotStore;

// The whole file. Its description is that of the keys at the top.
table! {
    /// Directories.
    pub struct Config {
        /// Disks, images, records, certificate and local key. On a file system that survives a reboot.
        data_dir: PathBuf = "/var/lib/sandboxd".into(), "path", env "SANDBOXD_DATA_DIR";
        /// Sockets and the state of running sandboxes. On a file system that a reboot empties. If only `data_dir` is changed,
        /// the default is `/run/sandboxd-` and 8 hexadecimal digits derived from `data_dir`.
        run_dir: PathBuf = "/run/sandboxd".into(), "path", env "SANDBOXD_RUN_DIR";
        http: Http;
        limits: Limits;
        resources: RequestedResources;
        capacity: Capacity;
        quotas: Quotas;
        isolation: IsolationTable;
        runtime: Runtime;
        egress: Egress;
        ports: Ports;
        e2b: E2b;
        retention: Retention;
        hibernate: Hibernate;
        snapshots: SnapshotStore;
        templates: TemplateLimits;
        prices: PriceList;
        mcp: Mcp;
        metrics: Metrics;
        log: Log;
        images: ImageSources;
        /// The warm pool: sandboxes provisioned ahead, by image, so that creates are fast. The table replaces the default one
        /// as a whole: `pool = {}` disables the warm pool. Images that are missing on this host are skipped until they are
        /// pulled.
        pool: BTreeMap<String, u32> = usual_pool(), "count" in 0..=1_000,
            each "Sandboxes of this image to keep ready, in the default size.";
    }
}

table! {
    /// How long records are stored, and how much of them for each account.
    pub struct Retention {
        /// A sandbox that stays paused this long is terminated. `0`: never.
        paused_days: u64 = 30, "days";
        /// Records and events of terminated sandboxes are listed this long. `0`: forever.
        terminated_days: u64 = 30, "days";
        /// A snapshot is deleted after this time. Those of templates are kept. `0`: never.
        snapshot_days: u64 = 0, "days";
        /// Records of terminated sandboxes of one account. Above it the oldest are removed with their events, within a minute.
        /// `0`: unlimited.
        records_mb: u64 = 256, "MB" in 0..=1 << 20;
        /// Logs of finished builds of one account. Above it the oldest logs are removed, also those of templates, which remain.
        /// `0`: unlimited.
        build_logs_mb: u64 = 256, "MB" in 0..=1 << 20;
    }
}

table! {
    /// What happens to the memory of paused sandboxes; see [hibernation.md](hibernation.md).
    pub struct Hibernate {
        /// The processes of a sandbox that stays paused this long are stored on the disk and leave the memory; the memory of a
        /// container is moved to the host's swap space. `0`: only on request, or when the host is short of memory.
        after_seconds: u64 = 60, "seconds" in 0..=365 * 24 * 3600;
    }
}

table! {
    /// Builds of templates; see [templates.md](templates.md).
    pub struct TemplateLimits {
        /// Builds at a time. Others wait.
        concurrent_builds: u32 = 4, "count" in 1..=64;
        /// The largest build context, without compression.
        max_context_mb: u64 = 1024, "MB" in 1..=65_536;
    }
}

/// A pooled sandbox costs a third of a megabyte of memory, and saves a create forty milliseconds.
fn usual_pool() -> BTreeMap<String, u32> {
    ["ubuntu:24.04", "python:3.12", "node:22"].map(|image| (image.to_owned(), 2)).into()
}

impl Config {
    /// Refuses values that types cannot express, and reports all of them. Each message names the key, the value and what is allowed.
    pub fn check(&self) -> Result<(), Problems> {
        let mut numbers = Vec::new();
        self.check_bounds("", None, &mut numbers);
        Problems::of_parts([
            Problems::of(numbers),
            self.check_directories(),
            self.http.check(),
            Problems::of([self.metrics.address().map(drop)]),
            check_listeners(&self.http, &self.metrics),
            Problems::of([self.mcp.check(), self.log.check()]),
            self.capacity.check(),
            self.isolation.check(),
            self.runtime.check(),
            self.egress.check(self.runtime.uid_slots),
            Problems::of([self.ports.check(), self.prices.check()]),
            self.e2b.check(),
            self.snapshots.check(),
            self.images.check(),
        ])
    }

    /// An empty path is the current directory, wherever that is.
    fn check_directories(&self) -> Result<(), Problems> {
        Problems::of([("data_dir", &self.data_dir), ("run_dir", &self.run_dir)].map(|(key, path)| {
            ensure!(!path.as_os_str().is_empty(), "{key} is ''; it must be the path of a directory");
            Ok(())
        }))
    }
}
