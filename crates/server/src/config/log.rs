//! `[log]`: the log of the daemon.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::declare::{shapes, table};

table! {
    /// The log on standard error.
    pub struct Log {
        /// Format of a line.
        format: LogFormat = LogFormat::Text, "`\"text\"` or `\"json\"`";
        /// `error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,engine=debug`. The environment variable
        /// `SANDBOXD_LOG` overrides it and is checked in the same way. Messages of the HTTP/2 library below `error` are
        /// dropped, unless the filter names `h2`. At `info` each request is a line, except successful reads, which are at
        /// `debug`.
        level: String = "info".to_owned(), "filter", env "SANDBOXD_LOG";
    }
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    Text,
    Json,
}

shapes! { Text: LogFormat; }

impl Log {
    pub(super) fn check(&self) -> Result<()> {
        check_log_level("log.level", &self.level)
    }
}

/// Checks a level of the log from the file or from a variable. `name` is that of the key or the variable.
pub fn check_log_level(name: &str, level: &str) -> Result<()> {
    ensure!(
        EnvFilter::builder().parse(level).is_ok()
            && !level.trim().is_empty()
            && level.split(',').all(sets_level),
        "{name} is '{level}'; it must be error, warn, info, debug or trace, or a filter such as 'info,engine=debug'"
    );
    Ok(())
}

/// Whether this part of a filter sets a level. A word that is none would be a module, and turn off all other messages.
fn sets_level(directive: &str) -> bool {
    directive.contains(['=', '[', ']', '}']) || directive.trim().parse::<LevelFilter>().is_ok()
}
