//! Arguments of `sbx snapshot`, `sbx rollback` and `sbx fork`.

use clap::{Args, Subcommand};

use super::pair;

/// The commands of `sbx snapshot`.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// Take a snapshot of a sandbox and print its id
    ///
    /// The snapshot has the files, and not the configuration: a sandbox from it has an open network unless `sbx create` restricts it.
    Create {
        /// Id or name of the sandbox
        #[arg(value_name = "SANDBOX")]
        id: String,
        /// Name the snapshot; several can have the same name
        #[arg(long, short, value_name = "NAME")]
        name: Option<String>,
        /// Add a tag; repeatable
        #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
        metadata: Vec<(String, String)>,
        /// Store the processes and their memory, too
        #[arg(long)]
        memory: bool,
    },
    /// List snapshots
    #[command(alias = "list")]
    Ls {
        /// List only snapshots of this sandbox
        #[arg(long, value_name = "SANDBOX")]
        sandbox: Option<String>,
        /// List only snapshots with this name
        #[arg(long, short, value_name = "NAME")]
        name: Option<String>,
        /// List only snapshots with this tag; repeatable
        #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
        metadata: Vec<(String, String)>,
        /// Print only ids, one per line
        #[arg(long, short)]
        quiet: bool,
    },
    /// Delete snapshots; sandboxes that were created from them are not affected
    #[command(alias = "delete")]
    Rm {
        /// Ids of the snapshots, or names that only one snapshot has
        #[arg(value_name = "SNAPSHOT", required = true)]
        ids: Vec<String>,
    },
}

/// The arguments of `sbx rollback`.
#[derive(Debug, Args)]
pub struct RollbackArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Id of a snapshot of this sandbox, or a name: that of the newest one counts
    #[arg(value_name = "SNAPSHOT")]
    pub snapshot: String,
}

/// The arguments of `sbx fork`.
#[derive(Debug, Args)]
pub struct ForkArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Create this many sandboxes, up to 100
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1)]
    pub count: u32,
    /// Set an environment variable, or pass yours with NAME alone; repeatable
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Name the new sandbox, if it is the only one
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Add a tag, in place of the tags of the sandbox; repeatable
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Continue copies of the processes in the new sandboxes
    #[arg(long)]
    pub memory: bool,
}
