//! How a test says that it cannot run on this machine. Called by tests, which then return.

use std::io::Write;

/// Notes the reason where `./dev test` looks for it. Fails the test where nobody asked for such notes.
pub fn skipped(name: &str, reason: &str) {
    let Some(log) = std::env::var_os("SANDBOXD_SKIP_LOG") else { panic!("{name} cannot run here: {reason}") };
    let noted = std::fs::File::options()
        .append(true)
        .create(true)
        .open(log)
        .and_then(|mut log| writeln!(log, "{name}: {reason}"));
    if let Err(error) = noted {
        panic!("{name} cannot run here ({reason}), and that cannot be noted: {error}");
    }
}
