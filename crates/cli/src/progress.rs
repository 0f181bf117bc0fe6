//! Shows the progress of a copy or a pull on one line of a terminal. Shows nothing if standard error is not a terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base::IgnorePoison;
use sandboxd_client::{PullProgress, PullStage};

use crate::tty;

/// Delay before the bar appears.
const SHOW_DELAY: Duration = Duration::from_millis(300);
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);
const BAR: u64 = 24;
const CLEAR: &str = "\r\x1b[K";

/// A progress line. Clones share it. [`done`](Self::done) removes it.
#[derive(Clone)]
pub struct ProgressLine {
    inner: Option<Arc<Mutex<ProgressState>>>,
}

struct ProgressState {
    name: String,
    total: Option<u64>,
    started: Instant,
    shown: Option<Instant>,
    /// Time and bytes of the first report.
    first: Option<(Instant, u64)>,
}

impl ProgressLine {
    /// The progress of something with this name, and with this number of bytes if it is known.
    pub fn new(name: &str, total: Option<u64>) -> Self {
        let name: String = name.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        let inner = || {
            Arc::new(Mutex::new(ProgressState {
                name,
                total,
                started: Instant::now(),
                shown: None,
                first: None,
            }))
        };
        Self { inner: io::stderr().is_terminal().then(inner) }
    }

    /// Shows nothing.
    pub fn none() -> Self {
        Self { inner: None }
    }

    /// A callback for the client library.
    pub fn callback(&self) -> impl Fn(u64) + Send + Sync + 'static {
        let progress = self.clone();
        move |bytes| progress.report(bytes)
    }

    /// Whether the progress is shown.
    pub fn is_shown(&self) -> bool {
        self.inner.is_some()
    }

    fn report(&self, bytes: u64) {
        self.draw(|inner| line(&inner.name, bytes, inner.total, rate(bytes, inner.started.elapsed())));
    }

    /// Shows the progress of a pull, which another client may have started earlier.
    pub fn pull(&self, pull: &PullProgress) {
        self.draw(|inner| {
            // A pull from another source starts from zero.
            let first = inner.first.filter(|(_, bytes)| *bytes <= pull.done_bytes);
            let (since, before) = *inner.first.insert(first.unwrap_or((Instant::now(), pull.done_bytes)));
            let rate = rate(pull.done_bytes - before, since.elapsed());
            pull_line(&inner.name, pull, rate, inner.started.elapsed())
        });
    }

    /// Replaces the line, at a limited rate.
    fn draw(&self, line: impl FnOnce(&mut ProgressState) -> String) {
        let Some(inner) = &self.inner else { return };
        let mut inner = inner.lock().ignore_poison();
        let last = inner.shown.unwrap_or(inner.started);
        let wait = if inner.shown.is_some() { REDRAW_INTERVAL } else { SHOW_DELAY };
        if last.elapsed() < wait {
            return;
        }
        inner.shown = Some(Instant::now());
        let mut line = line(&mut inner);
        if let Some(columns) = tty::stderr_columns() {
            // `CLEAR` clears only one row.
            line = line.chars().take(columns.saturating_sub(1)).collect();
        }
        // A closed standard error is not a failure.
        let _ = write!(io::stderr(), "{CLEAR}{line}");
    }

    /// Removes the line.
    pub fn done(&self) {
        let Some(inner) = &self.inner else { return };
        if inner.lock().ignore_poison().shown.take().is_some() {
            let _ = write!(io::stderr(), "{CLEAR}");
        }
    }
}

/// Bytes per second.
fn rate(bytes: u64, elapsed: Duration) -> u64 {
    let rate = (u128::from(bytes) * 1000).checked_div(elapsed.as_millis()).unwrap_or(0);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

fn pull_line(name: &str, pull: &PullProgress, rate: u64, waited: Duration) -> String {
    let stage = match pull.stage {
        PullStage::Resolving => "resolving",
        PullStage::Fetching if pull.total_bytes > 0 => {
            return line(&format!("pulling {name}"), pull.done_bytes, Some(pull.total_bytes), rate);
        }
        PullStage::Fetching => "unpacking",
        PullStage::Building => "building",
        PullStage::Storing => "writing to disk",
    };
    format!("pulling {name}: {stage}, {} s", waited.as_secs())
}

fn line(name: &str, bytes: u64, total: Option<u64>, rate: u64) -> String {
    let rate = size(rate);
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

/// A size with a suitable unit.
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
    fn a_line_shows_size_and_rate() {
        let half = line("a", 500_000_000, Some(1_000_000_000), rate(500_000_000, Duration::from_secs(2)));
        assert_eq!(half, "a [############............]  50 % 500.0 MB of 1.0 GB, 250.0 MB/s");
        assert_eq!(line("a", 12_345, None, rate(12_345, Duration::ZERO)), "a 12.3 kB, 0 B/s");
        assert!(line("a", 5, Some(3), 0).contains("100 %"));
        assert!(!line("a", 0, Some(0), 0).contains('%'));
    }

    #[test]
    fn a_pull_line_shows_the_stage() {
        let shown = |stage, done_bytes, total_bytes| {
            let pull = PullProgress { stage, done_bytes, total_bytes };
            pull_line("img:1", &pull, 1_500_000, Duration::from_millis(12_900))
        };
        assert_eq!(
            shown(PullStage::Fetching, 30_000_000, 120_000_000),
            "pulling img:1 [######..................]  25 % 30.0 MB of 120.0 MB, 1.5 MB/s"
        );
        assert_eq!(shown(PullStage::Resolving, 0, 0), "pulling img:1: resolving, 12 s");
        assert_eq!(shown(PullStage::Fetching, 0, 0), "pulling img:1: unpacking, 12 s");
        assert_eq!(shown(PullStage::Building, 0, 0), "pulling img:1: building, 12 s");
        assert_eq!(shown(PullStage::Storing, 9, 9), "pulling img:1: writing to disk, 12 s");
    }
}
