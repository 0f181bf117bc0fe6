//! Quotas: upper bounds per account, independent of the host's capacity (`QUOTA_EXCEEDED`).
//!
//! Used by the engine's ledger for sandboxes, by the server for requests and streams, by the store for stored bytes. Quotas of
//! resources in use refuse requests; quotas of stored records evict the oldest. `None` is unlimited.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use api::Resources;

use crate::{ProcessState, ReachedLimit, Usage};

const MB: u64 = 1 << 20;

/// The quotas of an account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Sandboxes that are not terminated, paused ones included.
    pub sandboxes: Option<u64>,
    /// vCPUs and memory of running sandboxes.
    pub vcpus: Option<u64>,
    pub memory_mb: Option<u64>,
    /// Disks of all sandboxes that are not terminated, and what else their account keeps on the host without a record.
    pub disk_mb: Option<u64>,
    pub snapshots: Option<u64>,
    /// Disks of snapshots, and all other copies of disks.
    pub snapshot_bytes: Option<u64>,
    /// Templates, and builds of some.
    pub templates: Option<u64>,
    /// Logs of detached executions.
    pub execution_log_bytes: Option<u64>,
    /// Requests in flight, streams included.
    pub connections: Option<u64>,
    /// Event streams, output streams and websockets.
    pub streams: Option<u64>,
    pub stored: StoredQuotas,
    /// Which of them the operator has set for this account alone; `None`: none.
    pub own: Option<Arc<OwnQuotas>>,
}

/// The quotas that an account does not share with others, for messages that name what the operator changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnQuotas {
    pub account: String,
    pub quotas: Vec<Quota>,
}

/// Stored bytes of an account; above a quota the oldest records are evicted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredQuotas {
    /// Idempotency records.
    pub idempotency_bytes: Option<u64>,
    /// Events of the service.
    pub event_bytes: Option<u64>,
    /// Events that clients posted.
    pub posted_event_bytes: Option<u64>,
}

/// The quotas of every account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaTable {
    pub default: Quotas,
    pub accounts: BTreeMap<String, Quotas>,
}

/// What the sandboxes of an account hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountUsage {
    pub sandboxes: u64,
    pub resources: Usage,
    /// Bytes on the host beside the disks: copies of disks below forks, deleted snapshots that are still needed, stored processes.
    pub retained_bytes: u64,
}

/// A quota that refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    Sandboxes,
    Vcpus,
    Memory,
    Disk,
    Snapshots,
    SnapshotBytes,
    Templates,
    ExecutionLogs,
    Connections,
    Streams,
}

impl Quota {
    /// The configuration key of all accounts.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Sandboxes => "quotas.sandboxes",
            Self::Vcpus => "quotas.vcpus",
            Self::Memory => "quotas.memory_mb",
            Self::Disk => "quotas.disk_mb",
            Self::Snapshots => "quotas.snapshots",
            Self::SnapshotBytes => "quotas.snapshots_mb",
            Self::Templates => "quotas.templates",
            Self::ExecutionLogs => "quotas.execution_logs_mb",
            Self::Connections => "quotas.connections",
            Self::Streams => "quotas.streams",
        }
    }

    /// The key in the table of an account.
    fn key_of(self, account: &str) -> String {
        let name = self.key().trim_start_matches("quotas.");
        format!("quotas.accounts.\"{account}\".{name}")
    }

    /// What its number counts, for messages.
    const fn counts(self) -> &'static str {
        match self {
            Self::Sandboxes => "sandboxes of an account",
            Self::Vcpus => "vCPUs of the running sandboxes of an account",
            Self::Memory => "MB of memory of the running sandboxes of an account",
            Self::Disk => "MB of disk of an account",
            Self::Snapshots => "snapshots of an account",
            Self::SnapshotBytes => "bytes of snapshots of an account",
            Self::Templates => "templates of an account",
            Self::ExecutionLogs => "bytes of execution logs of an account",
            Self::Connections => "requests in flight of an account",
            Self::Streams => "streams of an account",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Sandboxes => "terminate sandboxes",
            Self::Disk => "terminate sandboxes, and delete the snapshots that were taken of them",
            Self::Vcpus | Self::Memory => "pause or terminate sandboxes",
            Self::Snapshots => "delete snapshots",
            Self::SnapshotBytes => {
                "delete snapshots or templates, and terminate the sandboxes that were created from them"
            }
            Self::Templates => "delete templates",
            Self::ExecutionLogs => "terminate sandboxes that ran detached executions",
            Self::Connections => "wait for requests to end",
            Self::Streams => "close streams",
        }
    }

    /// Whether usage falls by itself within seconds.
    pub const fn is_momentary(self) -> bool {
        matches!(self, Self::Connections)
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sandboxes => "sandboxes",
            Self::Vcpus => "vCPUs",
            Self::Memory => "memory in MB",
            Self::Disk => "disk in MB",
            Self::Snapshots => "snapshots",
            Self::SnapshotBytes => "snapshots in bytes",
            Self::Templates => "templates",
            Self::ExecutionLogs => "execution logs in bytes",
            Self::Connections => "requests in flight",
            Self::Streams => "streams",
        })
    }
}

/// The quota would be exceeded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.why(), self.limit())]
pub struct QuotaExceeded {
    pub quota: Quota,
    pub used: u64,
    pub requested: u64,
    pub allowed: u64,
    /// The configuration key that has the number.
    pub key: Cow<'static, str>,
}

impl QuotaExceeded {
    /// The message without the limit.
    pub fn why(&self) -> String {
        let Self { quota, used, requested, .. } = self;
        let remedy = quota.remedy();
        format!("the account's quota of {quota} is exceeded: {used} used, {requested} requested; {remedy}")
    }

    /// The limit for the error's body.
    pub fn limit(&self) -> ReachedLimit {
        ReachedLimit::set_by_operator(self.allowed, self.quota.counts(), self.key.clone())
    }
}

impl QuotaTable {
    /// The quotas of an account: its own, or those of all others.
    pub fn of(&self, account: &str) -> &Quotas {
        self.accounts.get(account).unwrap_or(&self.default)
    }
}

impl Quotas {
    /// The usage with one more running sandbox.
    pub fn admit(&self, used: AccountUsage, resources: Resources) -> Result<AccountUsage, QuotaExceeded> {
        self.check(Quota::Sandboxes, used.sandboxes, 1, self.sandboxes)?;
        let resources = self.add(used, Usage::of(resources, ProcessState::Running))?;
        Ok(AccountUsage { sandboxes: used.sandboxes.saturating_add(1), resources, ..used })
    }

    /// The usage after a paused or stopped sandbox runs again.
    pub fn resume(
        &self,
        used: AccountUsage,
        resources: Resources,
        from: ProcessState,
    ) -> Result<AccountUsage, QuotaExceeded> {
        let more = Usage::of(resources, ProcessState::Running).minus(Usage::of(resources, from));
        Ok(AccountUsage { resources: self.add(used, more)?, ..used })
    }

    fn add(&self, used: AccountUsage, more: Usage) -> Result<Usage, QuotaExceeded> {
        self.check(Quota::Vcpus, used.resources.cpu, more.cpu, self.vcpus)?;
        self.check(Quota::Memory, used.resources.memory_mb, more.memory_mb, self.memory_mb)?;
        self.check(Quota::Disk, used.disk_mb(), more.disk_mb, self.disk_mb)?;
        Ok(used.resources.plus(more))
    }

    /// The usage with more bytes beside the disks of sandboxes.
    pub fn retain(&self, used: AccountUsage, bytes: u64) -> Result<AccountUsage, QuotaExceeded> {
        let next = used.retain(bytes);
        self.check(Quota::Disk, used.disk_mb(), next.disk_mb() - used.disk_mb(), self.disk_mb)?;
        Ok(next)
    }

    /// Whether the account may have `more` snapshots, of a disk that has this many bytes.
    pub fn take_snapshot(
        &self,
        more: u64,
        count: u64,
        used_bytes: u64,
        bytes: u64,
    ) -> Result<(), QuotaExceeded> {
        self.check(Quota::Snapshots, count, more, self.snapshots)?;
        self.check(Quota::SnapshotBytes, used_bytes, bytes, self.snapshot_bytes)
    }

    /// Whether a detached execution may start: its log may grow as long as the account's logs are below the quota.
    pub fn may_log(&self, used_bytes: u64) -> Result<(), QuotaExceeded> {
        self.check(Quota::ExecutionLogs, used_bytes, 1, self.execution_log_bytes)
    }

    /// Whether the account may have one more request in flight.
    pub fn connect(&self, used: u64) -> Result<(), QuotaExceeded> {
        self.check(Quota::Connections, used, 1, self.connections)
    }

    /// Whether the account may have one more template.
    pub fn create_template(&self, used: u64) -> Result<(), QuotaExceeded> {
        self.check(Quota::Templates, used, 1, self.templates)
    }

    /// Whether the account may open one more stream.
    pub fn stream(&self, used: u64) -> Result<(), QuotaExceeded> {
        self.check(Quota::Streams, used, 1, self.streams)
    }

    /// Nothing requested is never refused: an account that is over a quota (after a change of the configuration) may still do what
    /// does not need it.
    fn check(
        &self,
        quota: Quota,
        used: u64,
        requested: u64,
        allowed: Option<u64>,
    ) -> Result<(), QuotaExceeded> {
        match allowed {
            Some(allowed) if requested > allowed.saturating_sub(used) && requested > 0 => {
                Err(QuotaExceeded { quota, used, requested, allowed, key: self.key(quota) })
            }
            _ => Ok(()),
        }
    }

    fn key(&self, quota: Quota) -> Cow<'static, str> {
        match &self.own {
            Some(own) if own.quotas.contains(&quota) => quota.key_of(&own.account).into(),
            _ => quota.key().into(),
        }
    }
}

impl AccountUsage {
    /// What counts in the quota of disk, in megabytes. Retained bytes are rounded up once for the account.
    pub fn disk_mb(&self) -> u64 {
        self.resources.disk_mb.saturating_add(self.retained_bytes.div_ceil(MB))
    }

    /// The usage with more bytes beside the disks, without a check: for what is on the host already.
    #[must_use]
    pub fn retain(self, bytes: u64) -> Self {
        Self { retained_bytes: self.retained_bytes.saturating_add(bytes), ..self }
    }

    /// The usage after such bytes were removed from the host.
    #[must_use]
    pub fn free(self, bytes: u64) -> Self {
        Self { retained_bytes: self.retained_bytes.saturating_sub(bytes), ..self }
    }

    /// The usage without one sandbox.
    #[must_use]
    pub fn release(self, resources: Resources, processes: ProcessState) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_sub(1),
            resources: self.resources.release(resources, processes),
            ..self
        }
    }

    /// The usage with one more sandbox, without a check: for recovered sandboxes, which exist already.
    #[must_use]
    pub fn adopt(self, resources: Resources, processes: ProcessState) -> Self {
        Self {
            sandboxes: self.sandboxes.saturating_add(1),
            resources: self.resources.plus(Usage::of(resources, processes)),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};

    use super::*;

    const SIZE: Resources = Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 };

    #[test]
    fn unlimited_quotas_refuse_nothing() {
        let used = AccountUsage {
            sandboxes: u64::MAX,
            resources: Usage { cpu: u64::MAX, memory_mb: u64::MAX, disk_mb: u64::MAX },
            retained_bytes: u64::MAX,
        };
        assert!(Quotas::default().admit(used, SIZE).is_ok());
        assert!(Quotas::default().retain(used, u64::MAX).is_ok());
        assert!(Quotas::default().stream(u64::MAX).is_ok());
    }

    #[test]
    fn each_quota_refuses_by_name_and_numbers() {
        let resources = Usage { cpu: 6, memory_mb: 12_288, disk_mb: 30_720 };
        let used = AccountUsage { sandboxes: 3, resources, retained_bytes: 0 };
        let none = Quotas::default;
        for (quotas, quota, numbers) in [
            (Quotas { sandboxes: Some(3), ..none() }, Quota::Sandboxes, (3, 1, 3)),
            (Quotas { vcpus: Some(7), ..none() }, Quota::Vcpus, (6, 2, 7)),
            (Quotas { memory_mb: Some(16_383), ..none() }, Quota::Memory, (12_288, 4096, 16_383)),
            (Quotas { disk_mb: Some(30_720), ..none() }, Quota::Disk, (30_720, 10_240, 30_720)),
        ] {
            let refused = quotas.admit(used, SIZE).unwrap_err();
            assert_eq!((refused.quota, (refused.used, refused.requested, refused.allowed)), (quota, numbers));
            assert!(refused.to_string().contains(quota.key()), "{refused}");
        }
        let one_more = Quotas {
            sandboxes: Some(4),
            vcpus: Some(8),
            memory_mb: Some(16_384),
            disk_mb: Some(40_960),
            ..none()
        };
        assert_eq!(one_more.admit(used, SIZE).unwrap().sandboxes, 4);
        assert_eq!(
            Quotas { streams: Some(2), ..none() }.stream(2).unwrap_err().to_string(),
            "the account's quota of streams is exceeded: 2 used, 1 requested; close streams; the limit is 2 streams of an account \
             (the operator sets quotas.streams)"
        );
    }

    #[test]
    fn a_refusal_names_the_key_that_has_the_number() {
        let own = OwnQuotas { account: "team-a".to_owned(), quotas: vec![Quota::Sandboxes] };
        let quotas = Quotas {
            sandboxes: Some(2),
            streams: Some(1),
            templates: Some(3),
            own: Some(Arc::new(own)),
            ..Quotas::default()
        };
        let used = AccountUsage { sandboxes: 2, ..AccountUsage::default() };
        let refused = quotas.admit(used, SIZE).unwrap_err();
        assert_eq!(refused.limit().key.as_deref(), Some("quotas.accounts.\"team-a\".sandboxes"));
        assert!(refused.to_string().ends_with("(the operator sets quotas.accounts.\"team-a\".sandboxes)"));
        // That of all accounts.
        assert_eq!(quotas.stream(1).unwrap_err().key, "quotas.streams");
        assert_eq!(quotas.create_template(3).unwrap_err().key, "quotas.templates");
        assert!(quotas.create_template(2).is_ok());
    }

    #[test]
    fn a_paused_sandbox_needs_cpu_and_memory_to_resume_and_no_disk() {
        let quotas = Quotas {
            sandboxes: Some(0),
            vcpus: Some(2),
            memory_mb: Some(4096),
            disk_mb: Some(0),
            ..Quotas::default()
        };
        let paused = AccountUsage::default().adopt(SIZE, ProcessState::Frozen);
        let running = quotas.resume(paused, SIZE, ProcessState::Frozen).unwrap();
        assert_eq!(running, AccountUsage::default().adopt(SIZE, ProcessState::Running));
        assert_eq!(
            quotas
                .resume(running.adopt(SIZE, ProcessState::Frozen), SIZE, ProcessState::Frozen)
                .unwrap_err()
                .quota,
            Quota::Vcpus
        );
    }

    #[test]
    fn retained_bytes_count_as_disk_and_refuse_new_sandboxes() {
        let quotas = Quotas { disk_mb: Some(10_250), ..Quotas::default() };
        let one = AccountUsage::default().adopt(SIZE, ProcessState::Running);
        let used = quotas.retain(one, 1).unwrap();
        assert_eq!(used.disk_mb(), 10_241);
        // Parts of a megabyte are not counted twice.
        let used = quotas.retain(used, MB - 1).unwrap();
        assert_eq!(used.disk_mb(), 10_241);
        let refused = quotas.retain(used, 10 * MB).unwrap_err();
        assert_eq!(
            (refused.quota, refused.used, refused.requested, refused.allowed),
            (Quota::Disk, 10_241, 10, 10_250)
        );
        let alone = used.release(SIZE, ProcessState::Running).retain(10 * MB);
        let refused = quotas.admit(alone, SIZE).unwrap_err();
        assert_eq!((refused.quota, refused.used, refused.requested), (Quota::Disk, 11, 10_240));
        assert!(quotas.admit(alone.free(10 * MB), SIZE).is_ok());
        // What needs no more disk is not refused.
        assert!(quotas.resume(alone.adopt(SIZE, ProcessState::Frozen), SIZE, ProcessState::Frozen).is_ok());
    }

    #[test]
    fn an_account_has_its_own_quotas_or_the_default() {
        let own = Quotas { sandboxes: Some(9), ..Quotas::default() };
        let table = QuotaTable {
            default: Quotas { sandboxes: Some(1), ..Quotas::default() },
            accounts: [("acme".to_owned(), own)].into(),
        };
        assert_eq!((table.of("acme").sandboxes, table.of("other").sandboxes), (Some(9), Some(1)));
    }

    proptest! {
        /// In any order of calls, the account never has more than its quotas, and the sums agree with what lives.
        #[test]
        fn never_over_and_never_wrong(
            allowed in (0u64..8, 0u64..20, 0u64..40_000, 0u64..90_000),
            calls in prop::collection::vec((prop_oneof![Just(0), Just(1), Just(2), Just(3)], 0usize..8), 0..80),
        ) {
            let quotas = Quotas {
                sandboxes: Some(allowed.0), vcpus: Some(allowed.1), memory_mb: Some(allowed.2), disk_mb: Some(allowed.3),
                ..Quotas::default()
            };
            let (mut used, mut living) = (AccountUsage::default(), Vec::<ProcessState>::new());
            for (call, which) in calls {
                let which = which % living.len().max(1);
                match (call, living.get(which).copied()) {
                    (0, _) => if let Ok(more) = quotas.admit(used, SIZE) { used = more; living.push(ProcessState::Running); },
                    (1, Some(processes)) => { used = used.release(SIZE, processes); living.swap_remove(which); }
                    (2, Some(ProcessState::Running)) => {
                        used = AccountUsage { resources: used.resources.pause(SIZE), ..used };
                        living[which] = ProcessState::Frozen;
                    }
                    (3, Some(ProcessState::Frozen)) => if let Ok(more) = quotas.resume(used, SIZE, ProcessState::Frozen) {
                        used = more;
                        living[which] = ProcessState::Running;
                    },
                    _ => {}
                }
                let sum = living.iter().fold(AccountUsage::default(), |sum, processes| sum.adopt(SIZE, *processes));
                prop_assert_eq!(used, sum);
                prop_assert!(used.sandboxes <= allowed.0 && used.resources.cpu <= allowed.1);
                prop_assert!(used.resources.memory_mb <= allowed.2 && used.resources.disk_mb <= allowed.3);
            }
        }
    }
}
