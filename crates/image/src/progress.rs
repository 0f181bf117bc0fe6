//! Progress of a pull, reported to all callers that wait for it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use base::IgnorePoison;

/// The stage of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullStep {
    /// Requesting the manifest from the source.
    Resolving,
    /// Fetching and unpacking; counts the bytes of the compressed layers.
    Fetching,
    /// Building a Debian root; no byte counts are known.
    Building,
    /// Syncing and moving into the store.
    Storing,
}

/// One report. `done_bytes` is at most `total_bytes`; both are 0 if the size is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullReport {
    pub image: String,
    pub source: String,
    pub stage: PullStep,
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// Called on the pull's task; must return without blocking.
pub type ProgressFn = Arc<dyn Fn(PullReport) + Send + Sync>;

const REPORT_EVERY_BYTES: u64 = 256 * 1024;
/// Limit of listeners of one pull. Further callers get the result without progress.
const LISTENERS: usize = 1_024;

/// Counts the bytes of one pull and reports them every 256 KiB.
pub(crate) struct Meter {
    image: String,
    state: Mutex<(String, PullStep)>,
    done: AtomicU64,
    total: AtomicU64,
    reported: AtomicU64,
    listeners: Mutex<Vec<ProgressFn>>,
}

impl Meter {
    pub(crate) fn new(image: &str) -> Self {
        Self {
            image: image.to_owned(),
            state: Mutex::new((String::new(), PullStep::Resolving)),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            listeners: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn listen(&self, listener: ProgressFn) {
        let mut listeners = self.listeners.lock().ignore_poison();
        if listeners.len() < LISTENERS {
            listeners.push(listener);
        }
    }

    /// Starts a source; resets the counts.
    pub(crate) fn begin(&self, source: &str) {
        *self.state.lock().ignore_poison() = (source.to_owned(), PullStep::Resolving);
        for counter in [&self.done, &self.total, &self.reported] {
            counter.store(0, Relaxed);
        }
        self.report();
    }

    pub(crate) fn stage(&self, stage: PullStep) {
        self.state.lock().ignore_poison().1 = stage;
        self.report();
    }

    pub(crate) fn expect_bytes(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Relaxed) + bytes;
        let last = self.reported.load(Relaxed);
        if done >= last + REPORT_EVERY_BYTES || done == self.total.load(Relaxed) {
            self.reported.store(done, Relaxed);
            self.report();
        }
    }

    /// Subtracts bytes that must be fetched again.
    pub(crate) fn take_back(&self, bytes: u64) {
        self.done.fetch_sub(bytes, Relaxed);
        self.reported.store(self.done.load(Relaxed), Relaxed);
    }

    /// The current progress.
    pub(crate) fn now(&self) -> PullReport {
        let (source, stage) = self.state.lock().ignore_poison().clone();
        let total_bytes = self.total.load(Relaxed);
        let done_bytes = self.done.load(Relaxed).min(total_bytes);
        PullReport { image: self.image.clone(), source, stage, done_bytes, total_bytes }
    }

    fn report(&self) {
        let now = self.now();
        let listeners = self.listeners.lock().ignore_poison().clone();
        for listener in listeners {
            listener(now.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn meter() -> (Meter, Arc<Mutex<Vec<PullReport>>>) {
        let (meter, reports) = (Meter::new("a"), Arc::new(Mutex::new(Vec::new())));
        let heard = Arc::clone(&reports);
        meter.listen(Arc::new(move |report| heard.lock().unwrap().push(report)));
        (meter, reports)
    }

    fn done_bytes(reports: &Mutex<Vec<PullReport>>) -> Vec<u64> {
        reports.lock().unwrap().drain(..).map(|report| report.done_bytes).collect()
    }

    #[test]
    fn bytes_are_reported_every_256_kib_and_at_the_end() {
        let (meter, reports) = meter();
        meter.expect_bytes(600 * KIB);
        for (bytes, heard) in
            [(100, vec![]), (156, vec![256]), (255, vec![]), (1, vec![512]), (87, vec![]), (1, vec![600])]
        {
            meter.add(bytes * KIB);
            let heard: Vec<u64> = heard.into_iter().map(|kib: u64| kib * KIB).collect();
            assert_eq!(done_bytes(&reports), heard, "{bytes} more");
        }
    }

    #[test]
    fn bytes_that_are_fetched_again_count_again() {
        let (meter, reports) = meter();
        meter.expect_bytes(1000 * KIB);
        meter.add(300 * KIB);
        meter.take_back(300 * KIB);
        assert_eq!((done_bytes(&reports), meter.now().done_bytes), (vec![300 * KIB], 0));
        meter.add(255 * KIB);
        assert!(done_bytes(&reports).is_empty());
        meter.add(KIB);
        assert_eq!(done_bytes(&reports), [256 * KIB]);
    }

    #[test]
    fn no_more_is_done_than_is_expected() {
        let (meter, _) = meter();
        meter.add(5);
        let now = meter.now();
        assert_eq!((now.done_bytes, now.total_bytes), (0, 0), "the size is unknown");
        meter.expect_bytes(3);
        assert_eq!(meter.now().done_bytes, 3);
    }

    #[test]
    fn another_source_begins_from_the_start() {
        let (meter, reports) = meter();
        assert_eq!((meter.now().stage, meter.now().source.as_str()), (PullStep::Resolving, ""));
        meter.expect_bytes(10);
        meter.add(10);
        meter.stage(PullStep::Fetching);
        meter.begin("mirror");
        let last = reports.lock().unwrap().pop().unwrap();
        let (image, source) = ("a".to_owned(), "mirror".to_owned());
        let begun = PullReport { image, source, stage: PullStep::Resolving, done_bytes: 0, total_bytes: 0 };
        assert_eq!(last, begun);
        meter.stage(PullStep::Storing);
        assert_eq!(reports.lock().unwrap().last().unwrap().stage, PullStep::Storing);
    }

    #[test]
    fn the_listeners_of_a_pull_are_bounded() {
        let (meter, heard) = (Meter::new("a"), Arc::new(AtomicU64::new(0)));
        for _ in 0..=LISTENERS {
            let heard = Arc::clone(&heard);
            meter.listen(Arc::new(move |_| {
                heard.fetch_add(1, Relaxed);
            }));
        }
        meter.begin("source");
        assert_eq!(heard.load(Relaxed), LISTENERS as u64);
    }
}
