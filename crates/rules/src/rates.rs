//! Rate limits: which limits a request counts against, and whether they are used up.
//!
//! The server keeps [`KeyWindows`] for each key and one execution [`Window`] for each sandbox, and asks before it serves. Times are
//! milliseconds of a monotonic clock; a clock that goes back is held at the newest time seen. Nothing fails. A refusal changes
//! nothing: a refused request counts against no limit.

mod window;

pub use window::{RateRefusal, Standing, Window, try_count_all, wall_seconds};

/// The value of the headers without a limit: the largest number that every client can represent.
pub const NO_LIMIT: u32 = i32::MAX as u32;

/// The limits, named by what they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    Read,
    Write,
    Create,
    Execute,
}

impl Limit {
    /// What it counts, for messages.
    pub fn counts(self) -> &'static str {
        match self {
            Self::Read => "read requests with this key",
            Self::Write => "write requests with this key",
            Self::Create => "sandbox creations with this key",
            Self::Execute => "executions in this sandbox",
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
}

impl Default for Rates {
    fn default() -> Self {
        Self { read: 300, write: 60, create: 10, execute: 100 }
    }
}

/// What a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Charge {
    Key(KeyCharge),
    /// Only the execution limit of the sandbox.
    Sandbox,
}

/// The limits of a key that a request counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyCharge {
    Read,
    Write,
    /// Write and creation, both or neither.
    Create,
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

/// The windows of one key.
#[derive(Debug, Clone)]
pub struct KeyWindows {
    read: Window,
    write: Window,
    create: Window,
}

impl KeyWindows {
    /// Empty windows; allocates nothing.
    pub fn new(rates: &Rates) -> Self {
        Self {
            read: Window::new(Limit::Read, rates.read),
            write: Window::new(Limit::Write, rates.write),
            create: Window::new(Limit::Create, rates.create),
        }
    }

    /// Counts a request, or refuses it and counts nothing.
    pub fn try_count(&mut self, charge: KeyCharge, now_ms: u64) -> Result<Standing, RateRefusal> {
        match charge {
            KeyCharge::Read => self.read.try_count(now_ms),
            KeyCharge::Write => self.write.try_count(now_ms),
            KeyCharge::Create => try_count_all(&mut self.write, &mut [&mut self.create], now_ms),
        }
    }

    /// The standing of the read limit; for responses to requests that counted against nothing.
    pub fn look(&mut self, now_ms: u64) -> Standing {
        self.read.look(now_ms)
    }

    /// Whether no request counts any more, so that dropping the windows changes no decision.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        [&mut self.read, &mut self.write, &mut self.create].into_iter().all(|window| window.is_idle(now_ms))
    }
}

#[cfg(test)]
mod tests;
