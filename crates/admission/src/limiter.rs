//! Rate limits: the windows of every key and sandbox that was active in the last minute.
//!
//! [`crate::Gate`] calls [`Limiter::count`] before it admits a request; [`crate::maintain`] calls [`Limiter::sweep`]. Nothing fails. Windows are
//! only in memory: after a restart all are empty.
//!
//! Windows of sandboxes belong to an account, so that no account can use up another's by naming its sandbox.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use api::SandboxId;
use base::{IgnorePoison, millis, unix_ms};
use rules::{
    Charge, KeyLimits, KeyWindows, Limit, RateRefusal, RateSource, RateTable, Rates, ReachedLimit,
    SandboxCharge, SandboxWindows, Standing,
};

use crate::keyring::Caller;

/// Number of locks.
const SHARDS: usize = 16;
/// The most sandboxes of one account with windows of their own; the account's others share windows. Clients can invent any number of
/// ids, so this bounds memory.
const SANDBOXES_OF_AN_ACCOUNT: usize = 10_000;

/// The values of the three rate headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateHeaders {
    pub limit: u32,
    pub remaining: u32,
    /// Unix seconds.
    pub reset_s: u64,
}

/// A request that exceeds a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub headers: RateHeaders,
    pub limit: ReachedLimit,
    pub retry_after_s: u64,
}

/// All windows.
#[derive(Debug)]
pub struct Limiter {
    table: RateTable,
    begun: Instant,
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// By the key's id.
    keys: HashMap<Arc<str>, KeyWindows>,
    accounts: HashMap<Arc<str>, Sandboxes>,
}

/// The windows of one account's sandboxes.
#[derive(Debug, Default)]
struct Sandboxes {
    own: HashMap<Box<str>, SandboxWindows>,
    shared: SandboxWindows,
}

/// An instant of the monotonic clock of the windows, and how far the wall clock is ahead of it. Setting the wall clock changes
/// headers, never decisions.
#[derive(Debug, Clone, Copy)]
struct Now {
    ms: u64,
    wall_ahead_ms: i64,
}

impl Refused {
    fn new(refusal: &RateRefusal, source: RateSource<'_>, now: Now) -> Self {
        Self {
            headers: headers(&refusal.standing, now),
            limit: refusal.limit(source),
            retry_after_s: refusal.retry_after_s,
        }
    }
}

impl Limiter {
    pub fn new(table: impl Into<RateTable>) -> Self {
        Self {
            table: table.into(),
            begun: Instant::now(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Counts a request against its limits, or refuses it and counts nothing. A request that counts against a sandbox, without a
    /// well-formed id of one, counts against nothing.
    pub fn count(
        &self,
        caller: &Caller,
        charge: Charge,
        sandbox: Option<&str>,
    ) -> Result<RateHeaders, Refused> {
        self.count_at(caller, charge, sandbox, self.now())
    }

    /// For responses to requests that counted against nothing.
    pub fn uncounted(&self) -> RateHeaders {
        let now = self.now();
        headers(&Standing::untouched(Limit::Read, self.table.default.read, now.ms), now)
    }

    /// The limits of a caller.
    pub fn rates_of(&self, caller: &Caller) -> Rates {
        self.table.of_key(&caller.account, caller.limits)
    }

    /// Drops windows that have counted nothing for a minute.
    pub fn sweep(&self) {
        self.sweep_at(self.now().ms);
    }

    fn count_at(
        &self,
        caller: &Caller,
        charge: Charge,
        sandbox: Option<&str>,
        now: Now,
    ) -> Result<RateHeaders, Refused> {
        let rates = self.rates_of(caller);
        let counted = match (charge, sandbox) {
            (Charge::Key(charge), _) => {
                let keys = &mut self.shard(&caller.key_id).keys;
                match keys.get_mut(&*caller.key_id) {
                    Some(windows) => windows.try_count(charge, now.ms),
                    None => keys
                        .entry(Arc::clone(&caller.key_id))
                        .or_insert_with(|| KeyWindows::new(&rates))
                        .try_count(charge, now.ms),
                }
            }
            (Charge::Sandbox(charge), Some(id)) if id.parse::<SandboxId>().is_ok() => {
                self.count_in_sandbox((&caller.account, id), charge, &rates, now)
            }
            (Charge::Sandbox(charge), _) => {
                Ok(Standing::untouched(charge.limit(), charge.of(&rates), now.ms))
            }
        };
        match counted {
            Ok(standing) => Ok(headers(&standing, now)),
            Err(refusal) => {
                let source = self.table.source_of_key(&caller.account, caller.limits);
                Err(Refused::new(&refusal, source, now))
            }
        }
    }

    /// Counts the start of a command by a token of the sandbox. `own` are the limits of the key that the token was made for.
    pub fn count_execution(
        &self,
        account: &Arc<str>,
        own: KeyLimits,
        sandbox: &SandboxId,
    ) -> Result<(), Refused> {
        let (rates, now) = (self.table.of_key(account, own), self.now());
        let sandbox = (account, sandbox.as_str());
        match self.count_in_sandbox(sandbox, SandboxCharge::Execute, &rates, now) {
            Ok(_) => Ok(()),
            Err(refusal) => {
                let source = self.table.source_of_key(account, own);
                Err(Refused::new(&refusal, source, now))
            }
        }
    }

    fn count_in_sandbox(
        &self,
        (account, sandbox): (&Arc<str>, &str),
        charge: SandboxCharge,
        rates: &Rates,
        now: Now,
    ) -> Result<Standing, RateRefusal> {
        if charge.of(rates) == 0 {
            // Needs no memory.
            return Ok(Standing::untouched(charge.limit(), 0, now.ms));
        }
        let accounts = &mut self.shard(account).accounts;
        let sandboxes = accounts.entry(Arc::clone(account)).or_default();
        sandboxes.windows(sandbox).try_count(charge, rates, now.ms)
    }

    fn sweep_at(&self, now_ms: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock().ignore_poison();
            shard.keys.retain(|_, windows| !windows.is_idle(now_ms));
            shard.accounts.retain(|_, sandboxes| !sandboxes.is_idle(now_ms));
            shard.keys.shrink_to_fit();
            shard.accounts.shrink_to_fit();
        }
    }

    fn shard(&self, name: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(name).to_le_bytes();
        self.shards[usize::from(hash[0]) % SHARDS].lock().ignore_poison()
    }

    fn now(&self) -> Now {
        let wall = unix_ms();
        let ms = millis(self.begun.elapsed());
        Now { ms, wall_ahead_ms: wall.saturating_sub(ms).try_into().unwrap_or(i64::MAX) }
    }
}

impl Sandboxes {
    fn windows(&mut self, id: &str) -> &mut SandboxWindows {
        if self.own.len() >= SANDBOXES_OF_AN_ACCOUNT && !self.own.contains_key(id) {
            return &mut self.shared;
        }
        self.own.entry(id.into()).or_default()
    }

    fn is_idle(&mut self, now_ms: u64) -> bool {
        self.own.retain(|_, windows| !windows.is_idle(now_ms));
        self.own.shrink_to_fit();
        self.own.is_empty() && self.shared.is_idle(now_ms)
    }
}

fn headers(standing: &Standing, now: Now) -> RateHeaders {
    RateHeaders {
        limit: standing.limit,
        remaining: standing.remaining,
        reset_s: standing.reset_unix_seconds(now.wall_ahead_ms),
    }
}

#[cfg(test)]
mod tests;
