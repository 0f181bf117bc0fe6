//! How far a copy has come, on one line of a terminal, for whoever waits. Nothing where standard error is no terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is over sooner needs no bar.
const PATIENCE: Duration = Duration::from_millis(300);
const BETWEEN: Duration = Duration::from_millis(100);
const BAR: u64 = 24;
const CLEAR: &str = "\r\x1b[K";

/// Clones are the same bar. Gone with [`done`](Self::done).
#[derive(Clone)]
pub struct Progress {
    inner: Option<Arc<Mutex<Inner>>>,
}

struct Inner {
    name: String,
    total: Option<u64>,
    begun: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub fn new(name: &str, total: Option<u64>, quiet: bool) -> Self {
        let wanted = !quiet && io::stderr().is_terminal();
        let name: String = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let inner = || Arc::new(Mutex::new(Inner { name, total, begun: Instant::now(), shown: None }));
        Self { inner: wanted.then(inner) }
    }

    /// For the library to tell.
    pub fn teller(&self) -> impl Fn(u64) + Send + Sync + 'static {
        let progress = self.clone();
        move |bytes| progress.tell(bytes)
    }

    fn tell(&self, bytes: u64) {
        let Some(inner) = &self.inner else { return };
        let mut inner = inner.lock().unwrap_or_else(PoisonError::into_inner);
        let last = inner.shown.unwrap_or(inner.begun);
        let wait = if inner.shown.is_some() { BETWEEN } else { PATIENCE };
        if last.elapsed() < wait {
            return;
        }
        inner.shown = Some(Instant::now());
        let line = line(&inner.name, bytes, inner.total, inner.begun.elapsed());
        // Nobody there to see it is no reason to fail.
        let _ = write!(io::stderr(), "{CLEAR}{line}");
    }

    /// Takes the line away.
    pub fn done(&self) {
        let Some(inner) = &self.inner else { return };
        if inner.lock().unwrap_or_else(PoisonError::into_inner).shown.take().is_some() {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

fn line(name: &str, bytes: u64, total: Option<u64>, took: Duration) -> String {
    let rate = (u128::from(bytes) * 1000).checked_div(took.as_millis()).unwrap_or(0);
    let rate = size(u64::try_from(rate).unwrap_or(u64::MAX));
    match total.filter(|total| *total > 0) {
        Some(total) => {
            let done = bytes.min(total);
            let full = done.saturating_mul(BAR).checked_div(total).unwrap_or(0);
            let bar: String = (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect();
            let percent = done.saturating_mul(100).checked_div(total).unwrap_or(0);
            format!("{name} [{bar}] {percent:3} % {} of {}, {rate}/s", size(bytes), size(total))
        }
        None => format!("{name} {}, {rate}/s", size(bytes)),
    }
}

/// In the unit that says it best.
pub fn size(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit / (unit / 10));
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..1_000_000 => format!("{} kB", tenths(1000)),
        1_000_000..1_000_000_000 => format!("{} MB", tenths(1_000_000)),
        _ => format!("{} GB", tenths(1_000_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let took = Duration::from_secs(2);
        let half = line("a", 500_000_000, Some(1_000_000_000), took);
        assert_eq!(half, "a [############............]  50 % 500.0 MB of 1.0 GB, 250.0 MB/s");
        assert_eq!(line("a", 12_345, None, Duration::ZERO), "a 12.3 kB, 0 B/s");
        assert!(line("a", 5, Some(3), took).contains("100 %"));
        assert!(!line("a", 0, Some(0), took).contains('%'));
    }
}
