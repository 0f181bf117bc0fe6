//! Called by tests that cannot run on this machine and then return.

use std::io::Write;

/// Appends the reason to the log of `./dev test`. Without such a log, the test fails.
pub fn skipped(name: &str, reason: &str) {
    let Some(log) = std::env::var_os("SANDBOXD_SKIP_LOG") else { panic!("{name} cannot run here: {reason}") };
    let written = std::fs::File::options()
        .append(true)
        .create(true)
        .open(log)
        .and_then(|mut log| writeln!(log, "{name}: {reason}"));
    if let Err(error) = written {
        panic!("{name} cannot run here ({reason}); writing the skip log failed: {error}");
    }
}
