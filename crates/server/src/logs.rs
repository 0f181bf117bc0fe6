//! What the daemon says of itself, on standard error. Set up once by `main`.
//!
//! No secret is ever logged: what holds one has no `Debug` that shows it.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};

/// Goes over the configuration's level.
const VARIABLE: &str = "SANDBOXD_LOG";

/// Warnings that clients can bring about as often as they like.
const CLIENTS_WRITE: &str = "h2=error";

/// For a server.
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

/// For a command whose output is for a person.
pub fn start_quiet() {
    text(filter("warn"));
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| configured(level))
}

/// What comes later in a filter goes over what is before, so that an operator can still ask for these.
fn configured(level: &str) -> EnvFilter {
    EnvFilter::new(format!("{CLIENTS_WRITE},{level}"))
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

    /// By its directives: a subscriber of this test would disturb those that other tests listen with.
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
