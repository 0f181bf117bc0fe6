//! Shows the progress of a pull: a line per stage, and on a terminal a byte count that is updated in place.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex};

use base::IgnorePoison;
use image::{Progress, ProgressFn, Stage};

/// Writes to standard error.
pub fn reporter() -> ProgressFn {
    let last: Mutex<Option<(String, Stage)>> = Mutex::new(None);
    let live = std::io::stderr().is_terminal();
    Arc::new(move |progress: Progress| {
        let mut last = last.lock().ignore_poison();
        let now = (progress.source.clone(), progress.stage);
        let new_stage = last.as_ref() != Some(&now);
        if !new_stage && !live {
            return;
        }
        let mut err = std::io::stderr().lock();
        let start = if live { "\r\x1b[K" } else { "" };
        let end = if live { "" } else { "\n" };
        // A failure to show progress is ignored.
        let _ = write!(err, "{start}{}{end}", line(&progress));
        let _ = err.flush();
        *last = Some(now);
    })
}

/// Clears the progress line.
pub fn finish() {
    if std::io::stderr().is_terminal() {
        // A failure to show progress is ignored.
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
}

fn line(progress: &Progress) -> String {
    let doing = match progress.stage {
        Stage::Resolving => "asking",
        Stage::Fetching => "fetching from",
        Stage::Building => "building from",
        Stage::Storing => "storing from",
    };
    let megabytes = |bytes: u64| bytes as f64 / 1_048_576.0;
    let bytes = if progress.total_bytes > 0 {
        format!(": {:.1} of {:.1} MB", megabytes(progress.done_bytes), megabytes(progress.total_bytes))
    } else {
        String::new()
    };
    format!("{}: {doing} {}{bytes}", progress.image, progress.source)
}
