//! The arguments of `cp`, `events` and `key`, and of `run -v`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// What is copied in, and perhaps out again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub local: PathBuf,
    pub inside: String,
    pub back: bool,
}

#[derive(Debug, Args)]
pub struct CpArguments {
    /// A path here, SANDBOX:PATH, or - for standard input; of a directory that ends with /. only what is in it
    pub from: String,
    /// A path here, SANDBOX:PATH, or - for standard output; an existing directory, or one that ends with /, takes it in
    pub to: String,
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

/// `LOCAL:PATH`, with `:rw` behind it or not.
pub fn volume(text: &str) -> Result<Volume, String> {
    let (text, back) = text.strip_suffix(":rw").map_or((text, false), |text| (text, true));
    match text.rsplit_once(':') {
        Some((local, inside)) if !local.is_empty() && inside.starts_with('/') => {
            Ok(Volume { local: local.into(), inside: inside.to_owned(), back })
        }
        _ => Err("it has to be LOCAL:PATH with an absolute path inside, such as .:/workspace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_taken_apart() {
        let made =
            |local: &str, inside: &str, back| Volume { local: local.into(), inside: inside.into(), back };
        assert_eq!(volume(".:/workspace"), Ok(made(".", "/workspace", false)));
        assert_eq!(volume("/a:b:/c:rw"), Ok(made("/a:b", "/c", true)));
        for text in ["", ".", ".:", ":/a", ".:relative", "/a:rw"] {
            assert!(volume(text).is_err(), "{text}");
        }
    }
}
