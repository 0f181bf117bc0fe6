//! Rate limits: the windows of every key and sandbox that was active in the last minute.
//!
//! The layers call [`Limiter::count`] before they admit a request; `layers::maintain` calls [`Limiter::sweep`]. Nothing fails. Windows are
//! only in memory: after a restart all are empty.
//!
//! Windows of sandboxes belong to an account, so that no account can use up another's by naming its sandbox.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use api::SandboxId;
use rules::{Charge, KeyWindows, Limit, RateRefusal, Rates, Standing, Window};

use crate::keyring::Caller;

/// Number of locks.
const SHARDS: usize = 16;
/// The most sandboxes of one account with a window of their own; the account's others share one window. Clients can invent any number
/// of ids, so this bounds memory.
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
    pub why: RateRefusal,
}

/// All windows.
#[derive(Debug)]
pub struct Limiter {
    rates: Rates,
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

/// The execution windows of one account's sandboxes.
#[derive(Debug)]
struct Sandboxes {
    own: HashMap<Box<str>, Window>,
    shared: Window,
}

/// An instant of the monotonic clock of the windows, and how far the wall clock is ahead of it. Setting the wall clock changes
/// headers, never decisions.
#[derive(Debug, Clone, Copy)]
struct Now {
    ms: u64,
    wall_ahead_ms: i64,
}

impl Limiter {
    pub fn new(rates: Rates) -> Self {
        Self {
            rates,
            begun: Instant::now(),
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// Counts a request against its limits, or refuses it and counts nothing. An execution without a well-formed sandbox id counts
    /// against nothing.
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
        headers(&Standing::untouched(Limit::Read, self.rates.read, now.ms), now)
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
        let counted = match (charge, sandbox) {
            (Charge::Key(charge), _) => {
                let keys = &mut self.shard(&caller.key_id).keys;
                match keys.get_mut(&*caller.key_id) {
                    Some(windows) => windows.try_count(charge, now.ms),
                    None => keys
                        .entry(Arc::clone(&caller.key_id))
                        .or_insert_with(|| KeyWindows::new(&self.rates))
                        .try_count(charge, now.ms),
                }
            }
            (Charge::Sandbox, Some(id)) if id.parse::<SandboxId>().is_ok() => {
                self.execution(&caller.account, id, now)
            }
            (Charge::Sandbox, _) => Ok(Standing::untouched(Limit::Execute, self.rates.execute, now.ms)),
        };
        match counted {
            Ok(standing) => Ok(headers(&standing, now)),
            Err(why) => Err(Refused { headers: headers(&why.standing, now), why }),
        }
    }

    /// Counts the start of a command without a key, such as one by a token of the sandbox.
    pub fn count_execution(&self, account: &Arc<str>, sandbox: &SandboxId) -> Result<(), RateRefusal> {
        self.execution(account, sandbox.as_str(), self.now()).map(drop)
    }

    fn execution(&self, account: &Arc<str>, sandbox: &str, now: Now) -> Result<Standing, RateRefusal> {
        let accounts = &mut self.shard(account).accounts;
        accounts
            .entry(Arc::clone(account))
            .or_insert_with(|| Sandboxes::new(self.rates.execute))
            .window(sandbox, self.rates.execute)
            .try_count(now.ms)
    }

    fn sweep_at(&self, now_ms: u64) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.keys.retain(|_, windows| !windows.is_idle(now_ms));
            shard.accounts.retain(|_, sandboxes| !sandboxes.is_idle(now_ms));
            shard.keys.shrink_to_fit();
            shard.accounts.shrink_to_fit();
        }
    }

    fn shard(&self, name: &str) -> MutexGuard<'_, Shard> {
        let hash = self.hasher.hash_one(name).to_le_bytes();
        self.shards[usize::from(hash[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        let wall = millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO));
        let ms = millis(self.begun.elapsed());
        Now { ms, wall_ahead_ms: wall.saturating_sub(ms).try_into().unwrap_or(i64::MAX) }
    }
}

impl Sandboxes {
    fn new(limit: u32) -> Self {
        Self { own: HashMap::new(), shared: Window::new(Limit::Execute, limit) }
    }

    fn window(&mut self, id: &str, limit: u32) -> &mut Window {
        let full = self.own.len() >= SANDBOXES_OF_AN_ACCOUNT;
        if limit == 0 || full && !self.own.contains_key(id) {
            return &mut self.shared;
        }
        self.own.entry(id.into()).or_insert_with(|| Window::new(Limit::Execute, limit))
    }

    fn is_idle(&mut self, now_ms: u64) -> bool {
        self.own.retain(|_, window| !window.is_idle(now_ms));
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

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
