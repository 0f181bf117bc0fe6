//! Usage and quotas of an account (`GET /v1/usage`), and what a sandbox uses (`GET /v1/sandboxes/{id}/metrics`).

use serde::{Deserialize, Serialize};

use crate::Timestamp;

/// A quota: the amount used and the amount allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Quota))]
pub struct QuotaView {
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 3))]
    pub used: u64,
    /// Upper bound; `null` if unlimited.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, required = true))]
    pub allowed: Option<u64>,
}

/// What a running sandbox used at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ResourceSample {
    pub timestamp: Timestamp,
    /// Number of vCPUs.
    #[cfg_attr(feature = "openapi", schema(example = 2))]
    pub cpu_count: u32,
    /// Use of the vCPUs since the sample before, in percent of all of them.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, example = 12.5))]
    pub cpu_used_percent: f64,
    /// Memory in use, without the page cache.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub memory_used_bytes: u64,
    /// Page cache of the sandbox's files. The kernel reclaims it when memory is short.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub memory_cache_bytes: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub memory_total_bytes: u64,
    /// Bytes that the disk occupies on the host.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub disk_used_bytes: u64,
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub disk_total_bytes: u64,
}

/// The samples of a sandbox, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ResourceMetrics {
    pub data: Vec<ResourceSample>,
}

/// Usage and quotas of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Usage))]
#[serde(rename_all = "camelCase")]
pub struct UsageView {
    /// The account of the key.
    #[cfg_attr(feature = "openapi", schema(example = "default"))]
    pub account: String,
    /// Sandboxes that are not terminated.
    pub sandboxes: QuotaView,
    /// vCPUs of running sandboxes.
    pub vcpus: QuotaView,
    /// Memory of running sandboxes.
    pub memory_mb: QuotaView,
    /// Disks of sandboxes that are not terminated, and what the account keeps beside them.
    pub disk_mb: QuotaView,
    /// Snapshots.
    pub snapshots: QuotaView,
    /// Disk space of snapshots, of the steps of templates, and of all other copies of disks.
    pub snapshot_bytes: QuotaView,
    /// Templates, those that are built and failed builds included.
    pub templates: QuotaView,
    /// Logs of detached executions.
    pub execution_log_bytes: QuotaView,
    /// Stored bytes of responses to requests with an `Idempotency-Key`. Above the quota the oldest are evicted.
    pub idempotency_bytes: QuotaView,
    /// Stored bytes of events of the service. Above the quota the oldest are evicted.
    pub event_bytes: QuotaView,
    /// Stored bytes of posted events. Above the quota the oldest are evicted.
    pub posted_event_bytes: QuotaView,
    /// Requests in flight, including streams and this request.
    pub connections: QuotaView,
    /// Event streams, output streams and attached terminals.
    pub streams: QuotaView,
}

impl UsageView {
    /// All quotas with their names, in the order of the fields.
    pub fn quotas(&self) -> [(&'static str, QuotaView); 13] {
        [
            ("sandboxes", self.sandboxes),
            ("vcpus", self.vcpus),
            ("memoryMb", self.memory_mb),
            ("diskMb", self.disk_mb),
            ("snapshots", self.snapshots),
            ("snapshotBytes", self.snapshot_bytes),
            ("templates", self.templates),
            ("executionLogBytes", self.execution_log_bytes),
            ("idempotencyBytes", self.idempotency_bytes),
            ("eventBytes", self.event_bytes),
            ("postedEventBytes", self.posted_event_bytes),
            ("connections", self.connections),
            ("streams", self.streams),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_quota_is_named_as_its_field() {
        let quota = |used| QuotaView { used, allowed: (used > 1).then_some(used) };
        let usage = UsageView {
            account: "default".to_owned(),
            sandboxes: quota(1),
            vcpus: quota(2),
            memory_mb: quota(3),
            disk_mb: quota(4),
            snapshots: quota(11),
            snapshot_bytes: quota(12),
            templates: quota(13),
            execution_log_bytes: quota(5),
            idempotency_bytes: quota(6),
            event_bytes: quota(7),
            posted_event_bytes: quota(8),
            connections: quota(9),
            streams: quota(10),
        };
        let json = serde_json::to_value(&usage).unwrap();
        assert_eq!(json["sandboxes"], serde_json::json!({ "used": 1, "allowed": null }));
        for (name, quota) in usage.quotas() {
            assert_eq!(json[name], serde_json::to_value(quota).unwrap(), "{name}");
        }
        assert_eq!(json.as_object().unwrap().len(), usage.quotas().len() + 1);
        assert_eq!(serde_json::from_value::<UsageView>(json).unwrap(), usage);
    }
}
