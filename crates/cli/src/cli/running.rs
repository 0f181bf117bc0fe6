//! The options with which `run` and `exec` run a command: input, time limit and output.

use std::time::Duration;

use anyhow::ensure;
use clap::Args;

use super::time;

/// The service's time limit for a command within one request.
pub const BUFFERED_MAX: Duration = Duration::from_secs(5 * 60);
/// The service's time limit for a detached command.
pub const DETACHED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Options of a command.
#[derive(Debug, Default, Args)]
pub struct CommandOptions {
    /// Pass standard input to the command, as it comes
    ///
    /// With --buffered it is text of up to 15 MiB, which is read to its end before the command starts.
    #[arg(long, short = 'i', alias = "interactive")]
    pub stdin: bool,
    /// Kill the command after this time, such as 90s or 90m; at most 24h, or 5m with --buffered; 0 for 24h
    ///
    /// Without it a command of 'sbx exec' may run as long as its sandbox. One of 'sbx run' may run as long as sbx if standard output is a
    /// terminal, and 5 minutes otherwise. With 'sbx run --detach' it is the timeout of the sandbox.
    #[arg(long, value_name = "TIME", value_parser = limit)]
    pub timeout: Option<Duration>,
    /// Print the output when the command has ended, up to 16 MiB per stream, instead of line by line
    #[arg(long)]
    pub buffered: bool,
}

impl CommandOptions {
    /// Whether the time limit is above that of a buffered command.
    pub fn is_long(&self) -> bool {
        self.timeout.is_some_and(|timeout| timeout > BUFFERED_MAX)
    }

    /// Refuses combinations that the service does not support, before anything is created.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(!(self.buffered && self.is_long()), "--timeout is at most 5m with --buffered");
        Ok(())
    }
}

/// Parses the time limit of a command.
pub fn limit(text: &str) -> Result<Duration, String> {
    let limit = lifetime(text)?;
    if limit > DETACHED_MAX { Err("expected a time up to 24h".to_owned()) } else { Ok(limit) }
}

/// Parses the timeout of a sandbox. Zero is the longest one, as it means no limit in other tools.
pub fn lifetime(text: &str) -> Result<Duration, String> {
    time(text).map(|time| if time.is_zero() { DETACHED_MAX } else { time })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_a_day_or_five_minutes_with_buffered() {
        for (text, is_long) in [("1ms", false), ("5m", false), ("301s", true), ("24h", true)] {
            let mut running =
                CommandOptions { timeout: Some(limit(text).unwrap()), ..CommandOptions::default() };
            assert_eq!((running.is_long(), running.check().is_ok()), (is_long, true), "{text}");
            running.buffered = true;
            assert_eq!(running.check().is_ok(), !is_long);
        }
        assert_eq!((limit("0"), limit("0ms")), (Ok(DETACHED_MAX), Ok(DETACHED_MAX)));
        assert!(limit("25h").is_err());
    }
}
