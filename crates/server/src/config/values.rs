//! Every setting and its default. What types cannot say of them is in `check`, what they are for in `reference`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
    pub capacity: Capacity,
    pub runtime: Runtime,
    pub egress: Egress,
    pub ports: Ports,
    pub retention: Retention,
    pub prices: PriceList,
    pub metrics: Metrics,
    pub log: Log,
    pub images: ImageSources,
    /// Sandboxes kept ready, by image. A table in the file takes the place of the default one.
    pub pool: BTreeMap<String, u32>,
}

/// Where the service listens, and its certificate.
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
    /// Addresses and networks whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<String>,
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
    /// Each is a name below this one.
    pub domain: String,
    /// In the URLs; 0 for the one of the service.
    pub public_port: u16,
    /// Through all ports of one sandbox.
    pub max_connections: u32,
    pub account_connections: u32,
    pub idle_seconds: u64,
}

/// What an hour of running time costs; 0 is free.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct PriceList {
    pub cpu_hour: f64,
    pub memory_gb_hour: f64,
    pub currency: String,
}

/// How the service is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tls {
    /// With a certificate of our own making.
    SelfSigned,
    /// With the operator's certificate.
    Files,
    /// Not at all: somebody before us does it.
    Off,
}

/// What the operator can count.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Empty: none.
    pub listen: String,
}

/// What the daemon says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    pub format: LogFormat,
    /// A level, or a filter as `tracing` has them.
    pub level: String,
}

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

/// Sources of an image, tried in order. Names of the default catalogue may be given other sources.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ImageSources {
    /// A create may name any image of any registry.
    pub allow_any: bool,
    #[serde(flatten)]
    pub named: BTreeMap<String, Vec<String>>,
}

/// What one key and one sandbox may do. For the first four, which count a minute, 0 means no limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub read_per_minute: u32,
    pub write_per_minute: u32,
    pub create_per_minute: u32,
    pub execute_per_minute: u32,
    pub concurrent_executions: u32,
    pub execution_queue: u32,
    /// Kept of each stream of a buffered command.
    pub max_output_bytes: usize,
    /// Held in all for buffered responses that clients have not read yet.
    pub buffered_output_bytes: usize,
    pub buffered_output_bytes_per_account: usize,
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

/// The isolation backend.
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
    /// Rate limits of each sandbox's disk; 0 is no limit.
    pub disk_read_mb_per_s: u32,
    pub disk_write_mb_per_s: u32,
    pub disk_iops: u32,
    /// "auto" uses the host's lxcfs or starts one, "off" uses none; or the directory of a running one.
    pub lxcfs: String,
}

/// What sandboxes reach.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Egress {
    pub network: NetworkKind,
    /// Who is asked for the addresses of names.
    pub resolver: OneOrMore,
    /// Of what is closed to every sandbox, what is open on this host: networks and addresses.
    pub allow_private: Vec<String>,
    /// Of what is open to every sandbox, what is closed on this host: networks and addresses.
    pub closed: Vec<String>,
    /// Where the sandboxes' addresses are from: "auto", or an IPv4 network.
    pub pool: String,
    /// Of each sandbox, in each direction; 0: unlimited.
    pub rate_mbit: u32,
}

/// How sandboxes are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// With links and rules of this host's kernel.
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

/// How long things are kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Retention {
    /// A paused sandbox is then terminated; 0 keeps it for ever.
    pub paused_days: u64,
    /// A terminated sandbox is then forgotten; 0 keeps its record for ever.
    pub terminated_days: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data_dir: "/var/lib/sandboxd".into(),
            run_dir: "/run/sandboxd".into(),
            http: Http::default(),
            limits: Limits::default(),
            capacity: Capacity::default(),
            runtime: Runtime::default(),
            egress: Egress::default(),
            ports: Ports::default(),
            retention: Retention::default(),
            prices: PriceList::default(),
            metrics: Metrics::default(),
            log: Log::default(),
            images: ImageSources::default(),
            // One that waits costs a third of a megabyte, and a create that finds none forty milliseconds: two are there for a
            // person's first steps. An image that is not on this host is passed over.
            pool: ["ubuntu:24.04", "python:3.12", "node:22"].map(|image| (image.to_owned(), 2)).into(),
        }
    }
}

impl Default for Http {
    /// On this host alone: who serves others chooses the address.
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8443".to_owned(),
            redirect_listen: "127.0.0.1:8080".to_owned(),
            tls: Tls::SelfSigned,
            tls_cert: PathBuf::new(),
            tls_key: PathBuf::new(),
            tls_names: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into(),
            trusted_proxies: Vec::new(),
            max_connections: 10_000,
            max_connections_per_address: 0,
            max_handshakes_per_address: 64,
            handshake_seconds: 10,
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

impl Default for Limits {
    fn default() -> Self {
        Self {
            read_per_minute: 300,
            write_per_minute: 60,
            create_per_minute: 10,
            execute_per_minute: 100,
            concurrent_executions: 3,
            execution_queue: 0,
            max_output_bytes: 16 << 20,
            buffered_output_bytes: 64 << 20,
            buffered_output_bytes_per_account: 48 << 20,
        }
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
    /// What ends in `localhost` is this host for every browser.
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

impl Default for Retention {
    fn default() -> Self {
        Self { paused_days: 30, terminated_days: 30 }
    }
}
