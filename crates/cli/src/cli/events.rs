//! The arguments of `sbx events`.

use clap::Args;

/// The arguments of `sbx events`.
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// List only events of this sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: Option<String>,
    /// Print new events until Ctrl-C or until the sandbox is terminated
    #[arg(long, short)]
    pub follow: bool,
    /// List only this type, such as exec.completed, or group, such as 'exec.*'; repeatable
    #[arg(long = "type", short = 't', value_name = "TYPE")]
    pub kinds: Vec<String>,
    /// List only events of this run
    #[arg(long, value_name = "ID")]
    pub run: Option<String>,
    /// List the newest N events [default: 100, with --follow 10]
    #[arg(long, short = 'n', value_name = "N")]
    pub last: Option<usize>,
}
