//! The meaning of each configuration key: a row per key, by table. `reference` prints them, and `keys` names the right one for an unknown
//! key. The rows are in the modules below, by what they configure.

mod limits;
mod sandboxes;
mod service;

/// One table of the file.
pub struct Table {
    /// Empty for the top level.
    pub name: &'static str,
    pub about: &'static str,
    /// Key, type, meaning.
    pub rows: &'static [(&'static str, &'static str, &'static str)],
    /// Keys that the operator chooses: placeholder, type, meaning.
    pub free: Option<(&'static str, &'static str, &'static str)>,
}

/// In the order of the reference.
pub const TABLES: [Table; 23] = [
    service::DIRECTORIES,
    service::HTTP,
    limits::LIMITS,
    limits::RESOURCES_MINIMUM,
    limits::CAPACITY,
    limits::QUOTAS,
    sandboxes::ISOLATION,
    sandboxes::ISOLATION_CONTAINER,
    sandboxes::ISOLATION_GVISOR,
    sandboxes::RUNTIME,
    sandboxes::EGRESS,
    sandboxes::PORTS,
    service::E2B,
    service::RETENTION,
    sandboxes::HIBERNATE,
    sandboxes::SNAPSHOTS,
    sandboxes::TEMPLATES,
    limits::PRICES,
    service::MCP,
    service::METRICS,
    service::LOG,
    sandboxes::IMAGES,
    sandboxes::POOL,
];
