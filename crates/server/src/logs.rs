//! The log on standard error. Initialized once.
//!
//! Secrets are not logged: types that hold one do not show it in `Debug`.

use std::ffi::OsString;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat, Problems, check_log_level};
use crate::log_writer;

/// Overrides the configured level.
pub const VARIABLE: &str = "SANDBOXD_LOG";

/// What a directive for the daemon begins with.
const DAEMON: &str = "sandboxd=";

/// The crates that such a directive is for, too: those of the doors, which log requests as the daemon.
const PARTS: [&str; 4] = ["admission", "native", "relay", "service"];

/// Suppresses warnings that clients can cause at any rate.
const SUPPRESSED: &str = "h2=error";

/// The level in the variable, if that is set and not empty. Refuses what `log.level` refuses: a mistyped level would turn the log off.
pub fn level_of_variable() -> Result<Option<String>, Problems> {
    checked(std::env::var_os(VARIABLE))
}

fn checked(variable: Option<OsString>) -> Result<Option<String>, Problems> {
    let Some(level) = variable.filter(|level| !level.is_empty()) else { return Ok(None) };
    let level = level.to_string_lossy().into_owned();
    Problems::of([check_log_level(VARIABLE, &level)])?;
    Ok(Some(level))
}

/// The log of the server. `level` overrides the configured one.
pub fn start(log: &Log, level: Option<&str>) {
    let filter = filter(level.unwrap_or(&log.level));
    match log.format {
        LogFormat::Text => text(filter),
        LogFormat::Json => tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_env_filter(filter)
            .with_writer(log_writer::stderr)
            .log_internal_errors(false)
            .init(),
    }
}

/// The log of the other commands. `level` is that of the variable.
pub fn start_quiet(level: Option<&str>) {
    text(filter(level.unwrap_or("warn")));
}

/// Later directives of a filter override earlier ones, so that an operator can enable these warnings, and set a level of a part.
fn filter(level: &str) -> EnvFilter {
    let of_daemon = level.split(',').filter_map(|directive| directive.strip_prefix(DAEMON));
    let of_parts: String = of_daemon.flat_map(|level| PARTS.map(|part| format!("{part}={level},"))).collect();
    EnvFilter::new(format!("{SUPPRESSED},{of_parts}{level}"))
}

/// Errors of the formatter are not printed: `eprintln!` panics if standard error has no reader.
fn text(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(log_writer::stderr)
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the directives: a subscriber would interfere with those of other tests.
    #[test]
    fn clients_do_not_write_warnings_of_libraries() {
        for (level, directives) in [
            ("info", "h2=error,info"),
            ("warn,engine=debug", "engine=debug,h2=error,warn"),
            ("info,h2=warn", "h2=warn,info"),
            (
                "warn,sandboxd=info",
                "admission=info,h2=error,native=info,relay=info,sandboxd=info,service=info,warn",
            ),
            (
                "sandboxd=debug,native=trace",
                "admission=debug,h2=error,native=trace,relay=debug,sandboxd=debug,service=debug",
            ),
        ] {
            let filter = filter(level).to_string();
            let mut seen: Vec<_> = filter.split(',').collect();
            seen.sort_unstable();
            assert_eq!(seen.join(","), directives);
        }
    }

    #[test]
    fn the_variable_is_checked_as_the_file_is() {
        let level = |text: &str| checked(Some(text.into()));
        for (text, expected) in
            [("", None), ("debug", Some("debug")), ("info,engine=debug", Some("info,engine=debug"))]
        {
            assert_eq!(level(text).unwrap().as_deref(), expected);
        }
        assert_eq!(checked(None), Ok(None));
        for wrong in ["verbose", "info,engine", "loud=very", " "] {
            let error = level(wrong).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("SANDBOXD_LOG is '{wrong}'; it must be error, warn")),
                "{error}"
            );
        }
    }
}
