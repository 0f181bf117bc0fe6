//! Rate limits: which limits a request counts against, and whether they are used up.
//!
//! The server keeps [`KeyWindows`] for each key and [`SandboxWindows`] for each sandbox, and asks before it serves. Times are
//! milliseconds of a monotonic clock; a clock that goes back is held at the newest time seen. Nothing fails. A refusal changes
//! nothing: a refused request counts against no limit.

mod key_limits;
mod window;

use std::borrow::Cow;
use std::collections::BTreeMap;

pub use key_limits::{BadKeyLimits, KeyLimits, PER_MINUTE_MAX};
pub use window::{RateRefusal, Standing, Window, try_count_all, wall_seconds};

/// The value of the headers without a limit: the largest number that every client can represent.
pub const NO_LIMIT: u32 = i32::MAX as u32;

/// The limits, named by what they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    Read,
    Write,
    Create,
    /// As many as writes, counted apart, so that no other write keeps a client from terminating its sandboxes.
    Terminate,
    /// Commands in a sandbox.
    Execute,
    /// Other operations in a sandbox that the specification does not name: on files, ports, terminals, code and so on.
    Operate,
}

/// Where the operator sets the limits of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateSource<'a> {
    /// The limits of all accounts.
    Common,
    /// Those of the account with this name.
    Account(&'a str),
    /// Those of the API key.
    Key,
}

impl Limit {
    /// What the operator changes for another limit: a key of the configuration, or a flag of the API key.
    pub fn key(self, source: RateSource<'_>) -> Cow<'static, str> {
        match source {
            RateSource::Key => "--limits of this key".into(),
            RateSource::Common => format!("limits.{}", self.name()).into(),
            RateSource::Account(account) => format!("limits.accounts.\"{account}\".{}", self.name()).into(),
        }
    }

    /// Its name in a table of the configuration.
    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read_per_minute",
            Self::Write | Self::Terminate => "write_per_minute",
            Self::Create => "create_per_minute",
            Self::Execute => "execute_per_minute",
            Self::Operate => "operate_per_minute",
        }
    }

    /// What it counts, for messages that have the number before it.
    pub const fn counts(self) -> &'static str {
        match self {
            Self::Read => "reads per minute",
            Self::Write => "writes per minute",
            Self::Create => "creates per minute",
            Self::Terminate => "terminations per minute",
            Self::Execute => "executions per minute in this sandbox",
            Self::Operate => "operations per minute in this sandbox",
        }
    }
}

/// The limits in any 60 seconds; 0 is unlimited. [`Rates::default`] is the documented API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rates {
    pub read: u32,
    pub write: u32,
    pub create: u32,
    pub execute: u32,
    pub operate: u32,
}

impl Rates {
    /// No limits.
    pub const UNLIMITED: Self = Self::each(0);

    /// The same number for each limit.
    pub const fn each(count: u32) -> Self {
        Self { read: count, write: count, create: count, execute: count, operate: count }
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self { read: 300, write: 60, create: 10, execute: 100, operate: 600 }
    }
}

/// The limits of every account.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RateTable {
    pub default: Rates,
    pub accounts: BTreeMap<String, Rates>,
}

impl From<Rates> for RateTable {
    /// The same limits for every account.
    fn from(default: Rates) -> Self {
        Self { default, accounts: BTreeMap::new() }
    }
}

impl RateTable {
    /// The limits of a request without a key.
    pub fn of_account(&self, account: &str) -> Rates {
        *self.accounts.get(account).unwrap_or(&self.default)
    }

    /// The limits of a request with a key.
    pub fn of_key(&self, account: &str, own: KeyLimits) -> Rates {
        match own {
            KeyLimits::OfAccount => self.of_account(account),
            KeyLimits::Unlimited => Rates::UNLIMITED,
            KeyLimits::PerMinute(count) => Rates::each(count.get()),
        }
    }

    /// Where those limits are set.
    pub fn source_of_key<'a>(&self, account: &'a str, own: KeyLimits) -> RateSource<'a> {
        match own {
            KeyLimits::OfAccount if self.accounts.contains_key(account) => RateSource::Account(account),
            KeyLimits::OfAccount => RateSource::Common,
            KeyLimits::Unlimited | KeyLimits::PerMinute(_) => RateSource::Key,
        }
    }
}

/// What a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Charge {
    Key(KeyCharge),
    /// Only a limit of the sandbox.
    Sandbox(SandboxCharge),
}

/// The limits of a key that a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyCharge {
    Read,
    Write,
    /// Write and creation, both or neither.
    Create,
    /// Termination, and write as long as that has room.
    Terminate,
}

/// The limit of a sandbox that a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SandboxCharge {
    Execute,
    Operate,
}

impl Charge {
    /// For a request that names no endpoint. `method` as HTTP writes it.
    pub fn without_endpoint(method: &str) -> Self {
        match method {
            "GET" | "HEAD" => Self::Key(KeyCharge::Read),
            _ => Self::Key(KeyCharge::Write),
        }
    }
}

impl SandboxCharge {
    /// The limit that the request counts against, besides the one of all requests.
    pub const fn limit(self) -> Limit {
        match self {
            Self::Execute => Limit::Execute,
            Self::Operate => Limit::Operate,
        }
    }

    /// The number that the rates allow.
    pub const fn of(self, rates: &Rates) -> u32 {
        match self {
            Self::Execute => rates.execute,
            Self::Operate => rates.operate,
        }
    }
}

/// The windows of one key.
#[derive(Debug, Clone)]
pub struct KeyWindows {
    read: Window,
    write: Window,
    create: Window,
    terminate: Window,
}

impl KeyWindows {
    /// Empty windows; allocates nothing.
    pub fn new(rates: &Rates) -> Self {
        Self {
            read: Window::new(Limit::Read, rates.read),
            write: Window::new(Limit::Write, rates.write),
            create: Window::new(Limit::Create, rates.create),
            terminate: Window::new(Limit::Terminate, rates.write),
        }
    }

    /// Counts a request, or refuses it and counts nothing.
    pub fn try_count(&mut self, charge: KeyCharge, now_ms: u64) -> Result<Standing, RateRefusal> {
        match charge {
            KeyCharge::Read => self.read.try_count(now_ms),
            KeyCharge::Write => self.write.try_count(now_ms),
            KeyCharge::Create => try_count_all(&mut self.write, &mut [&mut self.create], now_ms),
            KeyCharge::Terminate if self.write.look(now_ms).remaining == 0 => {
                self.terminate.try_count(now_ms)
            }
            KeyCharge::Terminate => try_count_all(&mut self.write, &mut [&mut self.terminate], now_ms),
        }
    }

    /// The standing of the read limit; for responses to requests that counted against nothing.
    pub fn look(&mut self, now_ms: u64) -> Standing {
        self.read.look(now_ms)
    }

    /// Whether no request counts any more, so that dropping the windows changes no decision.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        [&mut self.read, &mut self.write, &mut self.create, &mut self.terminate]
            .into_iter()
            .all(|window| window.is_idle(now_ms))
    }
}

/// The windows of one sandbox, which count the requests of all keys of its account. The limits are those of the key of each request.
#[derive(Debug, Clone)]
pub struct SandboxWindows {
    execute: Window,
    operate: Window,
}

impl Default for SandboxWindows {
    /// Empty windows; allocates nothing.
    fn default() -> Self {
        Self { execute: Window::new(Limit::Execute, 0), operate: Window::new(Limit::Operate, 0) }
    }
}

impl SandboxWindows {
    /// Counts a request, or refuses it and counts nothing.
    pub fn try_count(
        &mut self,
        charge: SandboxCharge,
        rates: &Rates,
        now_ms: u64,
    ) -> Result<Standing, RateRefusal> {
        let window = match charge {
            SandboxCharge::Execute => &mut self.execute,
            SandboxCharge::Operate => &mut self.operate,
        };
        window.limited_to(charge.of(rates)).try_count(now_ms)
    }

    /// Whether no request counts any more.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        self.execute.is_idle(now_ms) && self.operate.is_idle(now_ms)
    }
}

#[cfg(test)]
mod tests;
