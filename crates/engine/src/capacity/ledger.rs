//! The capacity ledger: which capacity of the host is reserved by which account, and which ranges of user ids are
//! leased. A [`Reservation`], a [`RetainedBytes`] and a [`SlotLease`] release what they hold when they are dropped.
//!
//! One lock covers the host and all accounts, so that concurrent creates together never exceed a quota.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use api::Resources;
use base::IgnorePoison;
use rules::{AccountUsage, Capacity, ProcessState, QuotaExceeded, QuotaTable, Shortage, Usage};

use crate::error::CapacityError;

/// Counts for the whole host.
#[derive(Debug)]
pub struct Ledger {
    slots: u32,
    quotas: QuotaTable,
    state: Mutex<LedgerState>,
}

#[derive(Debug)]
struct LedgerState {
    /// Its disk follows the free space of the file system.
    capacity: Capacity,
    used: Usage,
    /// Accounts that have a sandbox or retained bytes.
    accounts: HashMap<Arc<str>, AccountUsage>,
    disk_shortage: Option<Shortage>,
    memory_shortage: Option<Shortage>,
    leased_slots: BTreeSet<u32>,
    /// Where the search for a free slot begins, so that a range of ids is reused as late as possible.
    next: u32,
}

/// A sandbox's share of the host, and of its account's quotas.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    resources: Resources,
    /// Where the processes may be that it is sufficient for.
    processes: ProcessState,
    /// `None` for a sandbox of the warm pool.
    account: Option<AccountShare>,
}

/// What of an account's quotas a sandbox uses.
#[derive(Debug)]
struct AccountShare {
    account: Arc<str>,
    resources: Resources,
    /// Bytes of its stored processes.
    stored_bytes: u64,
}

/// Whether a quota can refuse bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaCheck {
    /// Somebody requests them.
    Enforced,
    /// They are on the host already, or the service writes them for its own sake.
    CountOnly,
}

/// Bytes that an account has on the host beside the disks of its sandboxes. They count in its quota of disk.
#[derive(Debug)]
pub struct RetainedBytes {
    ledger: Arc<Ledger>,
    account: Arc<str>,
    bytes: u64,
}

/// A range of user ids.
#[derive(Debug)]
pub struct SlotLease {
    ledger: Arc<Ledger>,
    pub number: u32,
}

impl Ledger {
    pub fn new(capacity: Capacity, quotas: QuotaTable, slots: u32) -> Self {
        let state = LedgerState {
            capacity,
            used: Usage::default(),
            accounts: HashMap::new(),
            disk_shortage: None,
            memory_shortage: None,
            leased_slots: BTreeSet::new(),
            next: 0,
        };
        Self { slots, quotas, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().ignore_poison()
    }

    pub fn capacity(&self) -> Capacity {
        self.state().capacity
    }

    pub fn used(&self) -> Usage {
        self.state().used
    }

    pub fn quotas(&self) -> &QuotaTable {
        &self.quotas
    }

    pub fn used_by(&self, account: &str) -> AccountUsage {
        self.state().accounts.get(account).copied().unwrap_or_default()
    }

    /// Sets the disk that may be promised from now on.
    pub fn set_disk(&self, disk_mb: u64, overcommit: f64) {
        let mut state = self.state();
        state.capacity = state.capacity.with_disk(disk_mb, overcommit);
    }

    /// Sets the host's current shortages. During a shortage no sandbox is started.
    pub fn set_shortages(&self, disk: Option<Shortage>, memory: Option<Shortage>) {
        let mut state = self.state();
        (state.disk_shortage, state.memory_shortage) = (disk, memory);
    }

    /// Refuses work that writes while the disk of the host is almost full.
    pub fn check_disk(&self) -> Result<(), Shortage> {
        self.state().disk_shortage.map_or(Ok(()), Err)
    }

    /// Reserves what a new sandbox needs: of an account, or for the warm pool.
    pub fn reserve(
        self: &Arc<Self>,
        resources: Resources,
        account: Option<&str>,
    ) -> Result<Reservation, CapacityError> {
        let mut state = self.state();
        // The quota is checked first, because evicting warm sandboxes does not help an account that is at its quota.
        let share = match account {
            Some(account) => Some(self.share(&state, account, resources)?),
            None => None,
        };
        state.check_shortages()?;
        state.used = state.capacity.admit(state.used, resources)?;
        let account = share.map(|(account, usage)| state.charge(account, usage, resources));
        Ok(Reservation { ledger: Arc::clone(self), resources, processes: ProcessState::Running, account })
    }

    fn share(
        &self,
        state: &LedgerState,
        account: &str,
        resources: Resources,
    ) -> Result<(Arc<str>, AccountUsage), CapacityError> {
        let (account, used) = state.find(account);
        let usage = self.quotas.of(&account).admit(used, resources)?;
        Ok((account, usage))
    }

    /// Counts bytes that an account has on the host beside the disks of its sandboxes, or is about to have.
    pub fn retain(
        self: &Arc<Self>,
        account: &str,
        bytes: u64,
        check: QuotaCheck,
    ) -> Result<RetainedBytes, QuotaExceeded> {
        let account = self.state().find(account).0;
        let mut retained = RetainedBytes { ledger: Arc::clone(self), account, bytes: 0 };
        retained.resize(bytes, check)?;
        Ok(retained)
    }

    /// Whether it would fit on the empty host.
    pub fn could_fit(&self, resources: Resources) -> bool {
        self.state().capacity.admit(Usage::default(), resources).is_ok()
    }

    /// Reserves for a recovered sandbox, even if it exceeds the capacity.
    pub fn adopt(
        self: &Arc<Self>,
        resources: Resources,
        processes: ProcessState,
        account: &str,
    ) -> Reservation {
        let mut state = self.state();
        state.used = state.used.plus(Usage::of(resources, processes));
        let (account, used) = state.find(account);
        let account = Some(state.charge(account, used.adopt(resources, processes), resources));
        Reservation { ledger: Arc::clone(self), resources, processes, account }
    }

    pub fn lease_slot(self: &Arc<Self>) -> Result<SlotLease, CapacityError> {
        let mut state = self.state();
        let start = state.next;
        let free = (start..self.slots)
            .chain(0..start.min(self.slots))
            .find(|number| !state.leased_slots.contains(number));
        let number = free.ok_or(CapacityError::NoSlot(self.slots))?;
        state.leased_slots.insert(number);
        state.next = number + 1;
        Ok(SlotLease { ledger: Arc::clone(self), number })
    }

    /// Leases the range that a recovered sandbox already uses.
    pub fn adopt_slot(self: &Arc<Self>, number: u32) -> SlotLease {
        self.state().leased_slots.insert(number);
        SlotLease { ledger: Arc::clone(self), number }
    }
}

impl LedgerState {
    fn check_shortages(&self) -> Result<(), Shortage> {
        self.disk_shortage.or(self.memory_shortage).map_or(Ok(()), Err)
    }

    fn find(&self, account: &str) -> (Arc<str>, AccountUsage) {
        match self.accounts.get_key_value(account) {
            Some((account, used)) => (Arc::clone(account), *used),
            None => (Arc::from(account), AccountUsage::default()),
        }
    }

    /// Accounts that hold nothing have no entry.
    fn set(&mut self, account: &Arc<str>, usage: AccountUsage) {
        if usage == AccountUsage::default() {
            self.accounts.remove(account);
        } else {
            self.accounts.insert(Arc::clone(account), usage);
        }
    }

    fn charge(&mut self, account: Arc<str>, usage: AccountUsage, resources: Resources) -> AccountShare {
        self.set(&account, usage);
        AccountShare { account, resources, stored_bytes: 0 }
    }

    fn refund(&mut self, share: &AccountShare, processes: ProcessState) {
        let used = self.find(&share.account).1;
        self.set(&share.account, used.release(share.resources, processes).free(share.stored_bytes));
    }

    /// Counts `after` instead of `before` retained bytes.
    fn retain(
        &mut self,
        quotas: &QuotaTable,
        account: &Arc<str>,
        (before, after): (u64, u64),
        check: QuotaCheck,
    ) -> Result<(), QuotaExceeded> {
        let without = self.find(account).1.free(before);
        let usage = match check {
            QuotaCheck::Enforced if after > before => {
                let now = without.retain(before);
                quotas.of(account).retain(now, after - before)?
            }
            QuotaCheck::Enforced | QuotaCheck::CountOnly => without.retain(after),
        };
        self.set(account, usage);
        Ok(())
    }
}

impl RetainedBytes {
    /// Changes the number of bytes. A refusal changes nothing.
    pub fn resize(&mut self, bytes: u64, check: QuotaCheck) -> Result<(), QuotaExceeded> {
        let change = (self.bytes, bytes);
        self.ledger.state().retain(&self.ledger.quotas, &self.account, change, check)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Counts the bytes while this daemon runs, because they could not be removed.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for RetainedBytes {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        let used = state.find(&self.account).1;
        state.set(&self.account, used.free(self.bytes));
    }
}

impl Reservation {
    /// Charges a sandbox of the warm pool to the account that claims it, with the requested size.
    pub fn claim(&mut self, account: &str, resources: Resources) -> Result<(), CapacityError> {
        if self.account.is_some() {
            return Ok(());
        }
        let mut state = self.ledger.state();
        state.check_shortages()?;
        let (account, usage) = self.ledger.share(&state, account, resources)?;
        self.account = Some(state.charge(account, usage, resources));
        Ok(())
    }

    /// Refunds the charge: the sandbox belongs to the warm pool again.
    pub fn unclaim(&mut self) {
        if let Some(share) = self.account.take() {
            self.ledger.state().refund(&share, self.processes);
        }
    }

    /// Reduces the share of a sandbox to what it holds with its processes there. Cannot fail.
    pub fn lower(&mut self, processes: ProcessState) {
        let mut state = self.ledger.state();
        state.used =
            state.used.release(self.resources, self.processes).plus(Usage::of(self.resources, processes));
        if let Some(share) = &self.account
            && let Some(used) = state.accounts.get_mut(&share.account)
        {
            *used = used.release(share.resources, self.processes).adopt(share.resources, processes);
        }
        self.processes = processes;
    }

    /// Raises the share of a sandbox that is about to run again. Fails if the host has no capacity or the account is
    /// at its quota.
    pub fn raise(&mut self) -> Result<(), CapacityError> {
        let mut state = self.ledger.state();
        // Frozen processes already occupy their memory; a stopped sandbox starts new processes.
        match self.processes {
            ProcessState::Stored | ProcessState::Ended => state.check_shortages()?,
            ProcessState::Running | ProcessState::Frozen => state.disk_shortage.map_or(Ok(()), Err)?,
        }
        let charged = match &self.account {
            Some(share) => {
                let used = state.accounts.get(&share.account).copied().unwrap_or_default();
                let usage =
                    self.ledger.quotas.of(&share.account).resume(used, share.resources, self.processes)?;
                Some((Arc::clone(&share.account), usage))
            }
            None => None,
        };
        state.used = state.capacity.resume(state.used, self.resources, self.processes)?;
        state.accounts.extend(charged);
        self.processes = ProcessState::Running;
        Ok(())
    }

    /// Changes the share to another size. Fails if the host has no capacity.
    pub fn resize(&mut self, resources: Resources) -> Result<(), CapacityError> {
        let mut state = self.ledger.state();
        let without = state.used.release(self.resources, self.processes);
        state.used = state.capacity.admit(without, resources)?;
        self.resources = resources;
        Ok(())
    }

    /// Counts the bytes of the sandbox's stored processes; 0 if it has none. A refusal changes nothing.
    pub fn set_stored_bytes(&mut self, bytes: u64, check: QuotaCheck) -> Result<(), QuotaExceeded> {
        let Some(share) = &mut self.account else { return Ok(()) };
        let change = (share.stored_bytes, bytes);
        self.ledger.state().retain(&self.ledger.quotas, &share.account, change, check)?;
        share.stored_bytes = bytes;
        Ok(())
    }

    /// Counts other bytes for the sandbox's account.
    pub fn retain(&self, bytes: u64, check: QuotaCheck) -> Result<Option<RetainedBytes>, QuotaExceeded> {
        let Some(share) = &self.account else { return Ok(None) };
        self.ledger.retain(&share.account, bytes, check).map(Some)
    }

    /// Releases the share before the reservation is dropped. The drop then releases nothing.
    pub fn release(&mut self) {
        let mut state = self.ledger.state();
        state.used = state.used.release(self.resources, self.processes);
        self.resources = Resources { cpu: 0, memory_mb: 0, disk_mb: 0 };
        if let Some(share) = self.account.take() {
            state.refund(&share, self.processes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

impl SlotLease {
    /// Keeps the range leased while this daemon runs, because something on the host may still use it.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.ledger.state().leased_slots.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use rules::{Quota, Quotas};

    use super::*;

    const SIZE: Resources = Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };
    const WIDE: Capacity = Capacity { cpu: 1000, memory_mb: 1_000_000, disk_mb: 1_000_000 };

    fn ledger() -> Arc<Ledger> {
        let capacity = Capacity { cpu: 4, memory_mb: 4096, disk_mb: 10_240 };
        Arc::new(Ledger::new(capacity, QuotaTable::default(), 3))
    }

    fn with_quotas(default: Quotas) -> Arc<Ledger> {
        Arc::new(Ledger::new(WIDE, QuotaTable { default, ..QuotaTable::default() }, 100))
    }

    fn refused_by<T: std::fmt::Debug>(result: Result<T, CapacityError>) -> Quota {
        match result {
            Err(CapacityError::Quota(refused)) => refused.quota,
            other => panic!("{other:?} is not a refusal by a quota"),
        }
    }

    #[test]
    fn a_dropped_reservation_is_released() {
        let ledger = ledger();
        let first = ledger.reserve(SIZE, Some("acme")).unwrap();
        let second = ledger.reserve(SIZE, None).unwrap();
        assert!(matches!(ledger.reserve(SIZE, None), Err(CapacityError::NoCapacity(_))));
        drop(first);
        ledger.reserve(SIZE, None).unwrap();
        drop(second);
        assert_eq!((ledger.used(), ledger.used_by("acme")), Default::default());
        assert!(ledger.state().accounts.is_empty());
    }

    #[test]
    fn a_paused_sandbox_frees_cpu_and_memory_that_others_may_take() {
        let capacity = Capacity { cpu: 2, memory_mb: 2048, disk_mb: 90_000 };
        let ledger = Arc::new(Ledger::new(capacity, QuotaTable::default(), 3));
        let mut paused = ledger.reserve(SIZE, None).unwrap();
        paused.lower(ProcessState::Frozen);
        let other = ledger.reserve(SIZE, None).unwrap();
        assert!(paused.raise().is_err());
        drop(other);
        paused.raise().unwrap();
        assert_eq!((ledger.used().cpu, ledger.used().memory_mb), (2, 2048));
    }

    #[test]
    fn slots_are_given_out_once_and_reused_as_late_as_possible() {
        let ledger = ledger();
        let first = ledger.lease_slot().unwrap();
        drop(first);
        let leases: Vec<_> = (0..3).map(|_| ledger.lease_slot().unwrap()).collect();
        assert_eq!(leases.iter().map(|lease| lease.number).collect::<Vec<_>>(), [1, 2, 0]);
        assert!(matches!(ledger.lease_slot(), Err(CapacityError::NoSlot(3))));
    }

    #[test]
    fn an_account_stays_within_its_quotas_and_leaves_others_alone() {
        let ledger = with_quotas(Quotas { sandboxes: Some(3), vcpus: Some(4), ..Quotas::default() });
        let mut first = ledger.reserve(SIZE, Some("acme")).unwrap();
        let _second = ledger.reserve(SIZE, Some("acme")).unwrap();
        assert_eq!(refused_by(ledger.reserve(SIZE, Some("acme"))), Quota::Vcpus);
        let _other = ledger.reserve(SIZE, Some("other")).unwrap();
        first.lower(ProcessState::Frozen);
        let third = ledger.reserve(SIZE, Some("acme")).unwrap();
        assert_eq!(refused_by(first.raise()), Quota::Vcpus);
        drop(third);
        first.raise().unwrap();
        first.lower(ProcessState::Frozen);
        let _third = ledger.reserve(SIZE, Some("acme")).unwrap();
        assert_eq!(refused_by(ledger.reserve(SIZE, Some("acme"))), Quota::Sandboxes);
        assert_eq!((ledger.used_by("acme").sandboxes, ledger.used_by("acme").resources.cpu), (3, 4));
    }

    #[test]
    fn an_account_that_takes_all_it_may_leaves_the_rest_of_the_host() {
        let host = Capacity { cpu: 12, memory_mb: 12 * 2048, disk_mb: 12 * 5120 };
        let half = || Quotas { vcpus: Some(6), ..Quotas::default() };
        for (quotas, refused) in [
            (half(), Quota::Vcpus),
            (Quotas { memory_mb: Some(6 * 2048), vcpus: None, ..half() }, Quota::Memory),
            (Quotas { disk_mb: Some(3 * 5120), vcpus: None, ..half() }, Quota::Disk),
            (Quotas { sandboxes: Some(3), vcpus: None, ..half() }, Quota::Sandboxes),
        ] {
            let size = Resources { cpu: 2, memory_mb: 4096, disk_mb: 5120 };
            let table = QuotaTable { default: quotas, ..QuotaTable::default() };
            let ledger = Arc::new(Ledger::new(host, table, 100));
            let all: Vec<_> = (0..3).map(|_| ledger.reserve(size, Some("greedy")).unwrap()).collect();
            assert_eq!(refused_by(ledger.reserve(size, Some("greedy"))), refused);
            // The other half.
            let others: Vec<_> = (0..3).map(|_| ledger.reserve(size, Some("other")).unwrap()).collect();
            assert_eq!((all.len(), others.len()), (3, 3));
        }
        // Without quotas there is nothing left.
        let ledger = Arc::new(Ledger::new(host, QuotaTable::default(), 100));
        let _all: Vec<_> = (0..6).map(|_| ledger.reserve(SIZE, Some("greedy")).unwrap()).collect();
        assert!(matches!(ledger.reserve(SIZE, Some("other")), Err(CapacityError::NoCapacity(_))));
    }

    #[test]
    fn a_sandbox_of_the_warm_pool_counts_when_it_is_claimed() {
        let ledger = with_quotas(Quotas { sandboxes: Some(1), memory_mb: Some(2048), ..Quotas::default() });
        let large = Resources { memory_mb: 4096, ..SIZE };
        let mut pooled = ledger.reserve(large, None).unwrap();
        let mut other = ledger.reserve(SIZE, None).unwrap();
        assert_eq!(ledger.used_by("acme").sandboxes, 0);
        // With the requested size, not the provisioned one.
        pooled.claim("acme", SIZE).unwrap();
        pooled.resize(SIZE).unwrap();
        assert_eq!(refused_by(other.claim("acme", SIZE)), Quota::Sandboxes);
        pooled.unclaim();
        assert_eq!(ledger.used_by("acme"), AccountUsage::default());
        other.claim("acme", SIZE).unwrap();
        drop((pooled, other));
        assert_eq!((ledger.used(), ledger.used_by("acme")), Default::default());
    }

    #[test]
    fn retained_bytes_count_until_they_are_dropped() {
        const MB: u64 = 1 << 20;
        let ledger = with_quotas(Quotas { disk_mb: Some(10_240), ..Quotas::default() });
        let mut sandbox = ledger.reserve(SIZE, Some("acme")).unwrap();
        let mut copy = ledger.retain("acme", 10 * MB, QuotaCheck::Enforced).unwrap();
        assert_eq!(refused_by(ledger.reserve(SIZE, Some("acme"))), Quota::Disk);
        drop(ledger.reserve(SIZE, Some("other")).unwrap());
        assert!(copy.resize(5131 * MB, QuotaCheck::Enforced).is_err());
        assert_eq!(ledger.used_by("acme").disk_mb(), 5130);
        copy.resize(2 * MB, QuotaCheck::Enforced).unwrap();
        sandbox.set_stored_bytes(3 * MB, QuotaCheck::Enforced).unwrap();
        assert!(sandbox.set_stored_bytes(6000 * MB, QuotaCheck::Enforced).is_err());
        sandbox.set_stored_bytes(6000 * MB, QuotaCheck::CountOnly).unwrap();
        assert_eq!(ledger.used_by("acme").disk_mb(), 11_122);
        // The sandbox may run again, and what it stored goes with it.
        sandbox.lower(ProcessState::Ended);
        sandbox.raise().unwrap();
        drop(sandbox);
        assert_eq!((ledger.used_by("acme").disk_mb(), ledger.used_by("acme").sandboxes), (2, 0));
        drop(copy);
        assert!(ledger.state().accounts.is_empty());
    }

    #[test]
    fn recovered_sandboxes_count_even_over_the_quota() {
        let ledger = with_quotas(Quotas { sandboxes: Some(1), ..Quotas::default() });
        let found: Vec<_> = (0..3).map(|_| ledger.adopt(SIZE, ProcessState::Frozen, "acme")).collect();
        assert_eq!(ledger.used_by("acme").sandboxes, 3);
        assert_eq!(refused_by(ledger.reserve(SIZE, Some("acme"))), Quota::Sandboxes);
        drop(found);
        ledger.reserve(SIZE, Some("acme")).unwrap();
    }

    #[test]
    fn concurrent_creates_never_exceed_a_quota() {
        let ledger = with_quotas(Quotas { sandboxes: Some(20), ..Quotas::default() });
        let held: Vec<Reservation> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..10).filter_map(|_| ledger.reserve(SIZE, Some("acme")).ok()).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!((held.len(), ledger.used_by("acme").sandboxes), (20, 20));
    }

    #[test]
    fn nothing_starts_while_the_host_is_short() {
        let ledger = with_quotas(Quotas::default());
        let mut paused = ledger.adopt(SIZE, ProcessState::Frozen, "acme");
        let mut stopped = ledger.adopt(SIZE, ProcessState::Ended, "acme");
        let disk = Shortage::Disk { free_mb: 10, needed_mb: 150 };
        ledger.set_shortages(Some(disk), None);
        assert!(matches!(ledger.reserve(SIZE, None), Err(CapacityError::Shortage(_))));
        assert!(matches!(paused.raise(), Err(CapacityError::Shortage(_))));
        assert_eq!(ledger.check_disk(), Err(disk));
        ledger.set_shortages(None, Some(Shortage::Memory { available_mb: 10, reserve_mb: 100 }));
        assert!(matches!(ledger.reserve(SIZE, None), Err(CapacityError::Shortage(_))));
        assert!(matches!(stopped.raise(), Err(CapacityError::Shortage(_))));
        // A frozen sandbox already occupies its memory.
        paused.raise().unwrap();
        ledger.set_shortages(None, None);
        stopped.raise().unwrap();
        ledger.reserve(SIZE, None).unwrap();
    }

    #[test]
    fn the_disk_that_may_be_promised_follows_the_host() {
        let ledger = with_quotas(Quotas::default());
        ledger.set_disk(5120, 2.0);
        let _both = [ledger.reserve(SIZE, None).unwrap(), ledger.reserve(SIZE, None).unwrap()];
        assert!(matches!(ledger.reserve(SIZE, None), Err(CapacityError::NoCapacity(_))));
        assert_eq!(ledger.capacity(), Capacity { disk_mb: 10_240, ..WIDE });
    }
}
