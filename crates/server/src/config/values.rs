//! Every setting and its default. Checks are in `check`, descriptions in `reference`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::images::ImageSources;
use super::isolation::IsolationTable;
use super::limits::Limits;
use super::quotas::Quotas;
use super::resources::RequestedResources;
use super::snapshots::SnapshotStore;

/// The whole file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Disks, images and records; survives a reboot.
    pub data_dir: PathBuf,
    /// Sockets and the state of running sandboxes; on a file system that a reboot empties.
    pub run_dir: PathBuf,
    pub http: Http,
    pub limits: Limits,
    pub resources: RequestedResources,
    pub capacity: Capacity,
    pub quotas: Quotas,
    pub isolation: IsolationTable,
    pub runtime: Runtime,
    pub egress: Egress,
    pub ports: Ports,
    pub e2b: E2b,
    pub retention: Retention,
    pub hibernate: Hibernate,
    pub snapshots: SnapshotStore,
    pub templates: TemplateLimits,
    pub prices: PriceList,
    pub mcp: Mcp,
    pub metrics: Metrics,
    pub log: Log,
    pub images: ImageSources,
    /// Sizes of the warm pool by image. A table in the file replaces the default.
    pub pool: BTreeMap<String, u32>,
}

/// Addresses, certificate and connection limits of the service.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Http {
    pub listen: String,
    /// Empty: none.
    pub redirect_listen: String,
    pub tls: Tls,
    /// PEM files, for `tls = "files"`.
    pub tls_cert: PathBuf,
    pub tls_key: PathBuf,
    /// In the self-signed certificate.
    pub tls_names: Vec<String>,
    /// Addresses and networks whose forwarding headers count.
    pub trusted_proxies: Vec<String>,
    /// Origins of web pages that may call the API.
    pub allowed_origins: Vec<String>,
    pub max_connections: u32,
    /// 0: a quarter of `max_connections`.
    pub max_connections_per_address: u32,
    pub max_handshakes_per_address: u32,
    pub handshake_seconds: u64,
}

/// How exposed ports are reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Ports {
    /// Host names of ports are below this domain.
    pub domain: String,
    /// In URLs; 0 for the port of the service.
    pub public_port: u16,
    /// Through all ports of one sandbox.
    pub max_connections: u32,
    pub account_connections: u32,
    pub idle_seconds: u64,
}

/// The E2B-compatible API.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct E2b {
    pub enabled: bool,
    /// Whether ports of its sandboxes are open without a token.
    pub public_ports: bool,
    /// Besides the default templates.
    pub templates: BTreeMap<String, E2bTemplate>,
}

/// An image and resources; the defaults are those of a create.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct E2bTemplate {
    pub image: String,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_mb: Option<u32>,
}

/// When the processes of paused sandboxes are stored on the disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Hibernate {
    pub after_seconds: u64,
}

/// Limits of the builds of templates.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateLimits {
    pub concurrent_builds: u32,
    pub max_context_mb: u64,
}

/// The price of an hour of running time; 0 is free.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct PriceList {
    pub cpu_hour: f64,
    pub memory_gb_hour: f64,
    pub currency: String,
}

/// TLS of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// With a generated certificate.
    SelfSigned,
    /// With the operator's certificate.
    Files,
    /// Without TLS: a proxy in front terminates it.
    Off,
}

/// The MCP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Mcp {
    pub enabled: bool,
    /// The image of sandboxes, unless a call names another one.
    pub image: String,
    pub max_sessions: u32,
    pub idle_minutes: u32,
    /// The lifetime of the sandbox of a session.
    pub sandbox_minutes: u32,
}

/// Metrics.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Empty: none.
    pub listen: String,
}

/// The log of the daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    pub format: LogFormat,
    /// A level, or a filter of `tracing`.
    pub level: String,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// The capacity for all sandboxes together, times the overcommit factors. 0 means the host's.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Capacity {
    pub cpu: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
    pub overcommit_cpu: f64,
    pub overcommit_memory: f64,
    pub overcommit_disk: f64,
    /// Reserves of the host; 0 chooses by its size.
    pub reserve_disk_mb: u64,
    pub reserve_memory_mb: u64,
}

/// What all sandboxes share.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Runtime {
    /// Former names of `isolation.container.program` and its `args`, or of those of gVisor if the program is `runsc`.
    pub path: String,
    pub args: Vec<String>,
    /// The static agent; "auto" takes the one beside this program.
    pub agent: String,
    /// Parent of all sandboxes' cgroups.
    pub cgroup_parent: String,
    /// First host user id for sandboxes; each takes 65,536 ids.
    pub uid_base: u32,
    /// Number of such ranges.
    pub uid_slots: u32,
    /// Processes and threads of one sandbox.
    pub pids_max: u32,
    /// Rate limits of each sandbox's disk; 0 is no limit.
    pub disk_read_mb_per_s: u32,
    pub disk_write_mb_per_s: u32,
    pub disk_iops: u32,
    /// "auto" uses the host's lxcfs or starts one, "off" uses none; or the directory of a running one.
    pub lxcfs: String,
}

/// The network of sandboxes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Egress {
    pub network: NetworkKind,
    /// The DNS resolvers.
    pub resolver: OneOrMore,
    /// Private networks and addresses that are open on this host.
    pub allow_private: Vec<String>,
    /// Public networks and addresses that are closed on this host.
    pub closed: Vec<String>,
    /// The pool of sandbox addresses: "auto", or an IPv4 network.
    pub pool: String,
    /// Of each sandbox, in each direction; 0: unlimited.
    pub rate_mbit: u32,
}

/// How sandboxes are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// With network links and nftables rules of this host's kernel.
    Nftables,
    /// Not at all.
    None,
}

/// A text, or a list of texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of strings")]
pub enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Retention.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// A paused sandbox is then terminated; 0 keeps it forever.
    pub paused_days: u64,
    /// The record of a terminated sandbox is then removed; 0 keeps it forever.
    pub terminated_days: u64,
    /// A snapshot is then deleted; 0 keeps it forever.
    pub snapshot_days: u64,
    /// Of each account, in MB: above it the oldest records of terminated sandboxes, and logs of builds, are removed. 0 is unlimited.
    pub records_mb: u64,
    pub build_logs_mb: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "/var/lib/sandboxd".into(),
            run_dir: "/run/sandboxd".into(),
            http: Http::default(),
            limits: Limits::default(),
            resources: RequestedResources::default(),
            capacity: Capacity::default(),
            quotas: Quotas::default(),
            isolation: IsolationTable::default(),
            runtime: Runtime::default(),
            egress: Egress::default(),
            ports: Ports::default(),
            e2b: E2b::default(),
            retention: Retention::default(),
            hibernate: Hibernate::default(),
            snapshots: SnapshotStore::default(),
            templates: TemplateLimits::default(),
            prices: PriceList::default(),
            mcp: Mcp::default(),
            metrics: Metrics::default(),
            log: Log::default(),
            images: ImageSources::default(),
            // A pooled sandbox costs a third of a megabyte of memory, and saves a create forty milliseconds. Images that are missing on
            // this host are skipped.
            pool: ["ubuntu:24.04", "python:3.12", "node:22"].map(|image| (image.to_owned(), 2)).into(),
        }
    }
}

impl Default for Http {
    /// Loopback: an operator who serves other hosts sets another address.
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8443".to_owned(),
            redirect_listen: "127.0.0.1:8080".to_owned(),
            tls: Tls::SelfSigned,
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            tls_names: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            trusted_proxies: Vec::new(),
            allowed_origins: Vec::new(),
            max_connections: 10_000,
            max_connections_per_address: 0,
            max_handshakes_per_address: 64,
            handshake_seconds: 10,
        }
    }
}

impl Default for Mcp {
    fn default() -> Self {
        Self {
            enabled: true,
            image: "ubuntu:24.04".to_owned(),
            max_sessions: 1000,
            idle_minutes: 15,
            sandbox_minutes: 60,
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9464".to_owned() }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

impl Default for Capacity {
    fn default() -> Self {
        let rules::Overcommit { cpu, memory, disk } = rules::Overcommit::PERSONAL;
        Self {
            cpu: 0,
            memory_mb: 0,
            disk_mb: 0,
            overcommit_cpu: cpu,
            overcommit_memory: memory,
            overcommit_disk: disk,
            reserve_disk_mb: 0,
            reserve_memory_mb: 0,
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
            // Between the range of systemd containers and the upper half, where some tools fail.
            uid_base: 0x7000_0000,
            uid_slots: 3_840,
            pids_max: 1_024,
            disk_read_mb_per_s: 0,
            disk_write_mb_per_s: 0,
            disk_iops: 0,
            lxcfs: "auto".to_owned(),
        }
    }
}

impl Default for Egress {
    fn default() -> Self {
        Self {
            network: NetworkKind::Nftables,
            resolver: OneOrMore::One("system".to_owned()),
            allow_private: Vec::new(),
            closed: Vec::new(),
            pool: "auto".to_owned(),
            rate_mbit: 0,
        }
    }
}

impl Default for Ports {
    /// Browsers resolve names that end in `localhost` to this host.
    fn default() -> Self {
        Self {
            domain: "sandboxes.localhost".to_owned(),
            public_port: 0,
            max_connections: 512,
            account_connections: 2048,
            idle_seconds: 600,
        }
    }
}

impl Default for E2b {
    fn default() -> Self {
        Self { enabled: false, public_ports: true, templates: BTreeMap::new() }
    }
}

impl Default for PriceList {
    fn default() -> Self {
        Self { cpu_hour: 0.0, memory_gb_hour: 0.0, currency: "EUR".to_owned() }
    }
}

impl PriceList {
    pub fn of_an_hour(&self) -> rules::Prices {
        rules::Prices::new(self.cpu_hour, self.memory_gb_hour, &self.currency)
    }
}

impl Default for Hibernate {
    fn default() -> Self {
        Self { after_seconds: 60 }
    }
}

impl Default for TemplateLimits {
    fn default() -> Self {
        Self { concurrent_builds: 4, max_context_mb: 1024 }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self { paused_days: 30, terminated_days: 30, snapshot_days: 0, records_mb: 256, build_logs_mb: 256 }
    }
}
