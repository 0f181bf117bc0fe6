//! Rate limits: which limits a request counts against, and whether they still have room (section 8, decision 21).
//!
//! The server keeps [`KeyWindows`] for each key and one execution [`Window`] for each sandbox, each behind a lock of its own, and asks
//! before it serves. Times are milliseconds of a clock that does not go back; one that does is held at the newest time seen.
//! Nothing fails. A refusal changes nothing: a refused request counts against no limit.

mod window;

pub use window::{RateRefusal, Standing, Window, ask_all, wall_seconds};

/// What the headers say where there is no limit: the largest number that every client can hold.
pub const NO_LIMIT: u32 = i32::MAX as u32;

/// The limits, named after what they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Limit {
    Read,
    Write,
    Create,
    Execute,
}

impl Limit {
    /// What it counts, as a message says it.
    pub fn counts(self) -> &'static str {
        match self {
            Self::Read => "reading requests with this key",
            Self::Write => "writing requests with this key",
            Self::Create => "sandbox creations with this key",
            Self::Execute => "executions in this sandbox",
        }
    }
}

/// How many of each in any 60 seconds; 0 for no limit. [`Rates::default`] is the specification.
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
    /// The execution limit of the sandbox alone.
    Sandbox,
}

/// What a request counts against among the limits of its key.
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
    /// With nothing counted yet; takes no memory beyond itself.
    pub fn new(rates: &Rates) -> Self {
        Self {
            read: Window::new(Limit::Read, rates.read),
            write: Window::new(Limit::Write, rates.write),
            create: Window::new(Limit::Create, rates.create),
        }
    }

    /// Counts a request, or refuses it and counts nothing.
    pub fn ask(&mut self, charge: KeyCharge, now_ms: u64) -> Result<Standing, RateRefusal> {
        match charge {
            KeyCharge::Read => self.read.ask(now_ms),
            KeyCharge::Write => self.write.ask(now_ms),
            KeyCharge::Create => ask_all(&mut self.write, &mut [&mut self.create], now_ms),
        }
    }

    /// How the reading limit stands; for answers to requests that counted against nothing.
    pub fn look(&mut self, now_ms: u64) -> Standing {
        self.read.look(now_ms)
    }

    /// Whether nothing is counted any more, so that forgetting it changes no answer.
    pub fn is_idle(&mut self, now_ms: u64) -> bool {
        [&mut self.read, &mut self.write, &mut self.create].into_iter().all(|window| window.is_idle(now_ms))
    }
}

#[cfg(test)]
mod tests;
