//! The log on standard error. Initialized once.
//!
//! Secrets are not logged: types that hold one do not show it in `Debug`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Overrides the configured level.
const VARIABLE: &str = "SANDBOXD_LOG";

/// Suppresses warnings that clients can cause at any rate.
const SUPPRESSED: &str = "h2=error";

/// The log of the server.
pub fn start(log: &Log) {
    let filter = filter(&log.level);
    match log.format {
        LogFormat::Text => text(filter),
        LogFormat::Json => tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .init(),
    }
}

/// The log of the other commands.
pub fn start_quiet() {
    text(filter("warn"));
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| configured(level))
}

/// Later directives of a filter override earlier ones, so that an operator can enable these warnings.
fn configured(level: &str) -> EnvFilter {
    EnvFilter::new(format!("{SUPPRESSED},{level}"))
}

fn text(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
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
        ] {
            let filter = configured(level).to_string();
            let mut seen: Vec<_> = filter.split(',').collect();
            seen.sort_unstable();
            assert_eq!(seen.join(","), directives);
        }
    }
}
