//! The arguments of `cp`, `events` and `key`, and of `run -v`; and the bounds of `run` and `exec`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::{Args, Subcommand};

use super::{Running, time};

/// The service's bound on a command whose answer is waited for.
const WAITED_FOR: Duration = Duration::from_secs(5 * 60);
/// And on one that goes on by itself.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

impl Running {
    /// Whether it may take longer than anybody waits for an answer.
    pub fn is_long(&self) -> bool {
        self.timeout.is_some_and(|timeout| timeout > WAITED_FOR)
    }

    /// What goes together, known before anything is begun.
    pub fn check(&self, input_is_raw: bool) -> anyhow::Result<()> {
        ensure!(!(self.buffered && self.is_long()), "--timeout is 5m at most with --buffered");
        ensure!(
            !(self.buffered && input_is_raw),
            "with --buffered standard input has to be text of at most 15 MiB; leave it out"
        );
        Ok(())
    }
}

/// How long a command may take.
pub fn limit(text: &str) -> Result<Duration, String> {
    let limit = time(text)?;
    if limit.is_zero() || limit > LONGEST {
        return Err("it has to be more than 0 and at most 24h".to_owned());
    }
    Ok(limit)
}

/// What is copied in, and perhaps out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub local: PathBuf,
    pub inside: PathBuf,
    pub back: bool,
}

#[derive(Debug, Args)]
pub struct CpArguments {
    /// A path here, SANDBOX:PATH, or - for standard input; of a directory that ends with /. only what is in it
    pub from: OsString,
    /// A path here, SANDBOX:PATH, or - for standard output; an existing directory, or one that ends with /, takes it in
    pub to: OsString,
    /// No progress bar
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Debug, Args)]
pub struct EventsArguments {
    /// Only those of this sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: Option<String>,
    /// Go on with what happens, until Ctrl-C, or until the sandbox is gone
    #[arg(long, short)]
    pub follow: bool,
    /// Only those of this type, such as exec.completed, or of a sort, such as 'exec.*'; may be repeated
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    pub kinds: Vec<String>,
    /// Only those of this run
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// The newest so many [default: 100, with --follow 10]
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
}

#[derive(Debug, Subcommand)]
pub enum KeyVerb {
    /// Make a key and print it, alone; it cannot be shown again
    Create {
        /// Whose sandboxes the key sees; an account is there as soon as it has a key
        #[arg(long, value_name = "NAME", default_value = "local")]
        account: String,
        /// What the key may do, separated by commas
        #[arg(long, value_name = "SCOPES", default_value = "read,execute,write")]
        scopes: String,
        /// A note for people, such as who uses the key
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
    },
    /// Every key there is or was, without its secret
    List,
    /// Make keys invalid
    Revoke {
        /// Identifiers of keys, as 'key list' shows them
        #[arg(value_name = "KEY", required = true)]
        ids: Vec<String>,
    },
}

/// `LOCAL:PATH`, with `:rw` behind it or not. Names are bytes.
pub fn volume(text: &OsStr) -> Result<Volume, String> {
    let bytes = text.as_bytes();
    let (bytes, back) = bytes.strip_suffix(b":rw").map_or((bytes, false), |bytes| (bytes, true));
    let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    let colon = bytes.iter().rposition(|byte| *byte == b':');
    match colon.map(|at| (&bytes[..at], &bytes[at + 1..])) {
        Some((local, inside)) if !local.is_empty() && inside.starts_with(b"/") => {
            Ok(Volume { local: path(local), inside: path(inside), back })
        }
        _ => Err("it has to be LOCAL:PATH with an absolute path inside, such as .:/workspace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_taken_apart() {
        let odd = volume(OsStr::from_bytes(b"dd\xfe:/w\xff:rw")).unwrap();
        assert_eq!(odd.local.as_os_str().as_bytes(), b"dd\xfe");
        assert_eq!(odd.inside.as_os_str().as_bytes(), b"/w\xff");
        let volume = |text: &str| volume(OsStr::new(text));
        let made =
            |local: &str, inside: &str, back| Volume { local: local.into(), inside: inside.into(), back };
        assert_eq!(volume(".:/workspace"), Ok(made(".", "/workspace", false)));
        assert_eq!(volume("/a:b:/c:rw"), Ok(made("/a:b", "/c", true)));
        for text in ["", ".", ".:", ":/a", ".:relative", "/a:rw"] {
            assert!(volume(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_command_has_a_day_and_one_that_is_waited_for_five_minutes() {
        for (text, is_long) in [("1ms", false), ("5m", false), ("301s", true), ("24h", true)] {
            let mut running = Running { timeout: Some(limit(text).unwrap()), ..Running::default() };
            assert_eq!((running.is_long(), running.check(true).is_ok()), (is_long, true), "{text}");
            running.buffered = true;
            assert_eq!((running.check(false).is_ok(), running.check(true).is_ok()), (!is_long, false));
        }
        for text in ["0", "0ms", "25h"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
