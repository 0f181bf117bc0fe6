//! The commands of `sbx key`.

use clap::{Args, Subcommand};

/// The commands of `sbx key`.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it; it cannot be shown again
    Create(NewKey),
    /// List the keys, without their secrets: valid ones, and those that ended in the last 7 days
    List {
        /// List all keys, however long ago they were revoked or expired; --json always does
        #[arg(long)]
        all: bool,
    },
    /// Revoke keys
    Revoke {
        /// Ids of the keys, as shown by 'sbx key list'
        #[arg(value_name = "KEY", required = true)]
        ids: Vec<String>,
    },
}

/// A key to create.
#[derive(Debug, Args)]
pub struct NewKey {
    /// Account whose sandboxes the key can use; a new name creates the account [default: the account of your key]
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Scopes of the key, separated by commas
    #[arg(long, value_name = "SCOPES", default_value = "read,execute,write")]
    pub scopes: String,
    /// Add a note, such as who uses the key
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// End the key after this time: 90d, 2w, 12h, 30m [default: never]
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Limit the key to this number of requests of each kind per minute, or not at all [default: as its account]
    #[arg(long, value_name = "account|none|N")]
    pub limits: Option<String>,
}
