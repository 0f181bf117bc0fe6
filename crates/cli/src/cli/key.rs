//! The commands of `sbx key`.

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it; it cannot be shown again
    Create {
        /// Account whose sandboxes the key can use; a new name creates the account
        #[arg(long, value_name = "NAME", default_value = "local")]
        account: String,
        /// Scopes of the key, separated by commas
        #[arg(long, value_name = "SCOPES", default_value = "read,execute,write")]
        scopes: String,
        /// Add a note, such as who uses the key
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
    },
    /// List all keys, including revoked ones, without their secrets
    List,
    /// Revoke keys
    Revoke {
        /// Ids of the keys, as shown by 'sbx key list'
        #[arg(value_name = "KEY", required = true)]
        ids: Vec<String>,
    },
}
