//! Shows the progress of a pull on standard error: a line per stage, one every ten seconds while nothing is reported, as during a build,
//! and on a terminal a byte count that is updated in place.

use std::future::Future;
use std::io::{IsTerminal, Write};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::IgnorePoison;
use image::{ProgressFn, PullReport, PullStep};
use tokio::time::Instant;

/// How long nothing is shown at most.
const SILENCE: Duration = Duration::from_secs(10);

/// Runs a pull, which gets the function that it reports to.
pub async fn show<T, Pull: Future<Output = T>>(pull: impl FnOnce(ProgressFn) -> Pull) -> T {
    let display =
        Arc::new(ProgressDisplay { last: Mutex::default(), is_live: std::io::stderr().is_terminal() });
    let reported = Arc::clone(&display);
    let mut pull = pin!(pull(Arc::new(move |progress: PullReport| reported.report(progress))));
    let mut ticks = tokio::time::interval(SILENCE);
    // The first tick is at once.
    ticks.tick().await;
    loop {
        tokio::select! {
            pulled = &mut pull => {
                display.clear();
                return pulled;
            }
            _ = ticks.tick() => display.tell_time(),
        }
    }
}

struct ProgressDisplay {
    last: Mutex<Option<LastLine>>,
    /// Whether a line is written over the one before.
    is_live: bool,
}

/// What the last line says.
struct LastLine {
    progress: PullReport,
    since: Instant,
}

impl ProgressDisplay {
    fn report(&self, progress: PullReport) {
        let mut last = self.last.lock().ignore_poison();
        let key = |progress: &PullReport| (progress.source.clone(), progress.stage);
        let known = last.as_ref().filter(|shown| key(&shown.progress) == key(&progress));
        if known.is_some() && !self.is_live {
            return;
        }
        let since = known.map_or_else(Instant::now, |shown| shown.since);
        self.write(&line(&progress));
        *last = Some(LastLine { progress, since });
    }

    /// Says that the stage goes on.
    fn tell_time(&self) {
        if let Some(LastLine { progress, since }) = &*self.last.lock().ignore_poison() {
            self.write(&format!("{} ({} s)", line(progress), since.elapsed().as_secs()));
        }
    }

    /// A failure to show progress is ignored.
    fn write(&self, line: &str) {
        let (start, end) = if self.is_live { ("\r\x1b[K", "") } else { ("", "\n") };
        let mut err = std::io::stderr().lock();
        let _ = write!(err, "{start}{line}{end}");
        let _ = err.flush();
    }

    fn clear(&self) {
        if self.is_live {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(progress: &PullReport) -> String {
    let doing = match progress.stage {
        PullStep::Resolving => "asking",
        PullStep::Fetching => "fetching from",
        PullStep::Building => "building from",
        PullStep::Storing => "storing from",
    };
    let megabytes = |bytes: u64| bytes as f64 / 1_048_576.0;
    let bytes = if progress.total_bytes > 0 {
        format!(": {:.1} of {:.1} MB", megabytes(progress.done_bytes), megabytes(progress.total_bytes))
    } else {
        String::new()
    };
    format!("{}: {doing} {}{bytes}", progress.image, progress.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_result_of_a_silent_pull_is_returned() {
        let progress = PullReport {
            image: "desktop".to_owned(),
            source: "debian:bookworm".to_owned(),
            stage: PullStep::Building,
            done_bytes: 0,
            total_bytes: 0,
        };
        assert_eq!(line(&progress), "desktop: building from debian:bookworm");
        let begun = Instant::now();
        let pulled = show(|report: ProgressFn| async move {
            report(progress);
            tokio::time::sleep(10 * SILENCE).await;
            7
        });
        assert_eq!(pulled.await, 7);
        assert_eq!(begun.elapsed(), 10 * SILENCE);
    }
}
