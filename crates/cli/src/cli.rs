//! The definition of the command line. Arguments of commands with many options are in `cli/`.

mod copy;
mod create;
mod events;
mod exec;
mod key;
mod mcp;
mod network;
mod running;
mod snapshot;
mod template;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use sandboxd_client::IsolationChoice;

pub use copy::{CpArguments, Volume, VolumeChanges, owner};
pub use create::{CreateArguments, SandboxOptions};
pub use events::EventsArguments;
pub use exec::{CodeArguments, ExecArguments, KillArguments, RunArguments, ShellArguments};
pub use key::{KeyCommand, NewKey};
pub use mcp::McpArguments;
pub use network::{NetworkChoice, NetworkCommand};
pub use running::{BUFFERED_MAX, CommandOptions, DETACHED_MAX};
pub use snapshot::{ForkArguments, RollbackArguments, SnapshotCommand};
pub use template::{BuildArguments, TemplateCommand};

use crate::units::{megabytes, time, vcpus};

/// Manage isolated Linux sandboxes from a terminal.
///
/// sbx takes the URL, the API key and the certificate from the first of these that sets them: --url, and a profile named with
/// --profile or SBX_PROFILE; the environment variables SANDBOXD_URL, SANDBOXD_API_KEY and SANDBOXD_CERTIFICATE; the profile
/// 'default', written by 'sbx login'; the daemon of this machine, if you may read its data directory, which is that of
/// SANDBOXD_DATA_DIR or /var/lib/sandboxd.
#[derive(Debug, Parser)]
#[command(name = "sbx", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: SbxCommand,
}

/// Flags of every command.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Use this profile, written by 'sbx login' [default: default]
    #[arg(long, global = true, value_name = "NAME", env = "SBX_PROFILE")]
    pub profile: Option<String>,
    /// Use the service at this URL instead of that of the environment or profile
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
}

/// The commands. The comments of the variants are their help texts.
#[derive(Debug, Subcommand)]
pub enum SbxCommand {
    /// Run a command in a new sandbox, then remove the sandbox
    Run(RunArguments),
    /// Create a sandbox and print its id
    Create(CreateArguments),
    /// Run a command in a sandbox
    Exec(ExecArguments),
    /// Run code in the code interpreter of a sandbox
    Code(CodeArguments),
    /// Open a terminal in a sandbox
    Shell(ShellArguments),
    /// Show the output of a command in a sandbox, or list the commands
    Logs(LogsArguments),
    /// End detached commands and terminals of a sandbox
    Kill(KillArguments),
    /// List sandboxes
    #[command(alias = "list")]
    Ls(LsArguments),
    /// List images, with the progress of pulls; 'sbx template ls' and 'sbx snapshot ls' list your own
    Images {
        /// Print only names, one per line
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show the account's usage and quotas
    Usage,
    /// Show the service's version, isolation backends and limits
    Info,
    /// Print all details of sandboxes as JSON
    Inspect(Ids),
    /// List the processes in a sandbox
    Ps(ProbeArguments),
    /// Show the processes in a sandbox by CPU usage until Ctrl-C; without a sandbox, what 'sbx stats' shows
    Top(TopArguments),
    /// Show the CPU, memory and disk that sandboxes use until Ctrl-C
    Stats(StatsArguments),
    /// Show and change which connections a sandbox may open
    #[command(subcommand)]
    Network(NetworkCommand),
    /// Pause sandboxes: freeze all their processes
    Pause(PauseArguments),
    /// Resume paused sandboxes
    Resume(ResumeArguments),
    /// Change the timeout of sandboxes, which then counts from now
    Timeout(TimeoutArguments),
    /// Take, list and delete snapshots of sandboxes
    #[command(subcommand, alias = "snapshots")]
    Snapshot(SnapshotCommand),
    /// Build a template from a Dockerfile and print its id
    Build(BuildArguments),
    /// List and delete templates, show and cancel builds
    #[command(subcommand, alias = "templates")]
    Template(TemplateCommand),
    /// Replace the disk of a sandbox by that of one of its snapshots; its processes end
    Rollback(RollbackArguments),
    /// Create sandboxes with a copy of the disk of another one and print their ids
    Fork(ForkArguments),
    /// Terminate sandboxes and delete their files
    Rm(RmArguments),
    /// Copy a file or a directory to, from or between sandboxes
    Cp(CpArguments),
    /// List events, or follow them with --follow
    Events(EventsArguments),
    /// Create, list and revoke API keys on the machine of the service
    #[command(subcommand)]
    Key(KeyCommand),
    /// Measure the latency of the service from this machine
    Bench(BenchArguments),
    /// Save a URL and an API key as a profile
    Login(LoginArguments),
    /// List the exposed ports of a sandbox
    Ports(ProbeArguments),
    /// Expose HTTP ports of a sandbox and print their URLs
    Expose(ExposeArguments),
    /// Close exposed ports
    Unexpose(UnexposeArguments),
    /// Open an exposed port, or the API documentation, in a browser
    Open(OpenArguments),
    /// Serve MCP on standard input and output, for AI assistants
    Mcp(McpArguments),
    /// Print a shell completion script
    Completion {
        /// Shell to print the script for
        shell: Shell,
    },
    /// Write manual pages to a directory
    #[command(hide = true)]
    Man {
        /// Directory to write the pages to
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Print completion candidates, for the completion scripts
    #[command(hide = true, name = "__complete")]
    Complete {
        #[arg(last = true)]
        words: Vec<String>,
    },
}

/// A shell with a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The arguments of `sbx timeout`.
#[derive(Debug, Args)]
pub struct TimeoutArguments {
    /// Running time from now, such as 90m or 24h; 0 ends the timeout now
    #[arg(value_name = "TIME", value_parser = time)]
    pub timeout: Duration,
    /// Ids or names of the sandboxes
    #[arg(value_name = "SANDBOX", required = true)]
    pub ids: Vec<String>,
}

/// The arguments of `sbx logs`.
#[derive(Debug, Args)]
pub struct LogsArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Execution id, as printed by 'sbx exec --detach'; without it, the newest command in the background
    #[arg(value_name = "EXECUTION", conflicts_with = "list")]
    pub execution: Option<String>,
    /// Follow the output until the command ends
    #[arg(long, short, conflicts_with = "list")]
    pub follow: bool,
    /// Print only the last N lines, with --json of each stream, and with --follow what comes after them
    #[arg(long, alias = "lines", short = 'n', value_name = "N", conflicts_with = "list", value_parser = lines)]
    pub tail: Option<usize>,
    /// List the executions instead
    #[arg(long, short)]
    pub list: bool,
    /// With --list, print only ids, one per line
    #[arg(long, short, requires = "list")]
    pub quiet: bool,
}

/// The arguments of `sbx ls`.
#[derive(Debug, Args)]
pub struct LsArguments {
    /// List only the sandbox with this id, and those whose names contain this
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Include terminated sandboxes, without those of the steps of builds
    #[arg(long, short)]
    pub all: bool,
    /// List only sandboxes in this state
    #[arg(long, value_name = "STATE", value_parser = ["running", "paused", "terminated"])]
    pub state: Option<String>,
    /// List only sandboxes of this image
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// List only sandboxes with this tag; repeatable
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Show the metadata and the command in the background, too
    #[arg(long, conflicts_with = "quiet")]
    pub wide: bool,
    /// Print only ids, one per line
    #[arg(long, short)]
    pub quiet: bool,
    /// List at most N sandboxes
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000)]
    pub limit: usize,
}

/// One or more sandboxes.
#[derive(Debug, Args)]
pub struct Ids {
    /// Ids or names of the sandboxes
    #[arg(value_name = "SANDBOX", required = true)]
    pub ids: Vec<String>,
}

/// The arguments of `sbx pause`.
#[derive(Debug, Args)]
pub struct PauseArguments {
    /// Store the processes on the host's disk, so that they need no memory and survive a reboot (gVisor only)
    #[arg(long)]
    pub hibernate: bool,
    #[command(flatten)]
    pub sandboxes: Ids,
}

/// The arguments of `sbx resume`.
#[derive(Debug, Args)]
pub struct ResumeArguments {
    /// End the processes and start the sandbox again on its disk
    #[arg(long)]
    pub cold: bool,
    #[command(flatten)]
    pub sandboxes: Ids,
}

/// The arguments of `sbx rm`.
#[derive(Debug, Args)]
pub struct RmArguments {
    /// Ids or names of the sandboxes
    #[arg(value_name = "SANDBOX", required_unless_present = "all")]
    pub ids: Vec<String>,
    /// Terminate all sandboxes of the account
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Succeed if a sandbox does not exist
    #[arg(long, short)]
    pub force: bool,
}

/// The arguments of commands that show one sandbox.
#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
}

/// The arguments of `sbx expose`.
#[derive(Debug, Args)]
#[command(after_help = RAW_TCP)]
pub struct ExposeArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Ports that HTTP servers in the sandbox listen on; the URLs pass on HTTP and websockets only
    #[arg(value_name = "PORT", required = true, value_parser = create::port)]
    pub ports: Vec<u16>,
    /// Allow access without a key to anyone who has the URL; by default a key or a token is required
    #[arg(long)]
    pub public: bool,
    /// Refuse traffic while the sandbox is paused instead of resuming it
    #[arg(long)]
    pub no_resume: bool,
}

/// How to reach a port that does not speak HTTP, for the help.
const RAW_TCP: &str = "Other protocols, such as those of databases, do not pass through a URL. A program of this machine reaches such a port over the \
    input and output of a command: sbx exec -i SANDBOX 'socat - TCP:localhost:6379'";

/// The arguments of `sbx unexpose`.
#[derive(Debug, Args)]
pub struct UnexposeArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Ports to close
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
}

/// The arguments of `sbx open`.
#[derive(Debug, Args)]
pub struct OpenArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX", requires = "port")]
    pub id: Option<String>,
    /// Exposed port to open; without SANDBOX and PORT, open the API documentation
    #[arg(value_name = "PORT")]
    pub port: Option<u16>,
    /// Make the URL of a private port valid for this time, such as 10m; at most a week
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = time)]
    pub time: Duration,
}

/// The arguments of `sbx top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    /// Id or name of the sandbox; several, or none for all live ones, are shown as by 'sbx stats'
    #[arg(value_name = "SANDBOX")]
    pub ids: Vec<String>,
    /// Refresh at this interval [default: 2s, or 5s for several sandboxes]
    #[arg(long, short, value_name = "TIME", value_parser = time)]
    pub every: Option<Duration>,
    /// Stop after N refreshes [default: 1 if the output is not a terminal]
    #[arg(long, alias = "looks", short = 'n', value_name = "N")]
    pub refreshes: Option<u32>,
}

/// The arguments of `sbx stats`.
#[derive(Debug, Default, Args)]
pub struct StatsArguments {
    /// Ids or names of the sandboxes [default: all that are not terminated]
    #[arg(value_name = "SANDBOX")]
    pub ids: Vec<String>,
    /// Print one table and exit; so does an output that is not a terminal
    #[arg(long)]
    pub no_stream: bool,
    /// Refresh at this interval; the service measures about every 5 s
    #[arg(long, short, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub every: Duration,
    /// Stop after N refreshes [default: 1 if the output is not a terminal]
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "no_stream")]
    pub refreshes: Option<u32>,
}

/// The arguments of `sbx bench`.
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Image of the sandboxes to create
    #[arg(default_value = "ubuntu:24.04")]
    pub image: String,
    /// Repeat each measurement N times
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub rounds: u32,
}

/// The arguments of `sbx login`.
#[derive(Debug, Args)]
pub struct LoginArguments {
    /// URL of the service; as --url
    #[arg(value_name = "URL")]
    pub service: Option<String>,
    /// Trust the certificate with this SHA-256 fingerprint, without asking
    #[arg(long, value_name = "SHA256", conflicts_with_all = ["certificate", "system"])]
    pub fingerprint: Option<String>,
    /// Trust the certificates in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    pub certificate: Option<PathBuf>,
    /// Trust the certificate authorities of this machine
    #[arg(long)]
    pub system: bool,
    /// Read the key from this file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// Parses the value of `--tail`, which is `all` in Docker for all lines.
fn lines(text: &str) -> Result<usize, String> {
    if text == "all" {
        return Ok(usize::MAX);
    }
    text.parse().map_err(|_| "expected a number of lines, or all".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// A parser with possible values, which completion scripts offer.
fn isolation() -> impl TypedValueParser<Value = IsolationChoice> {
    PossibleValuesParser::new(["auto", "container", "gvisor"]).try_map(|name| name.parse::<IsolationChoice>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_command_follows_two_dashes() {
        let cli = Cli::try_parse_from(["sbx", "run", "-e", "A=1", "img", "--", "ls", "-l"]).unwrap();
        let SbxCommand::Run(run) = cli.command else { panic!() };
        assert_eq!(
            (run.image.as_str(), run.command.as_slice()),
            ("img", &["ls".to_owned(), "-l".to_owned()][..])
        );
        assert_eq!(run.new.isolation, None);
        assert!(Cli::try_parse_from(["sbx", "run", "img"]).is_err());
        assert!(Cli::try_parse_from(["sbx", "rm"]).is_err());
    }

    #[test]
    fn the_isolation_is_one_of_three() {
        for (name, choice) in [
            ("auto", IsolationChoice::Auto),
            ("container", IsolationChoice::Container),
            ("gvisor", IsolationChoice::Gvisor),
        ] {
            let cli = Cli::try_parse_from(["sbx", "create", "--isolation", name, "img"]).unwrap();
            let SbxCommand::Create(create) = cli.command else { panic!() };
            assert_eq!(create.new.isolation, Some(choice));
        }
        let error =
            Cli::try_parse_from(["sbx", "create", "--isolation", "vm", "img"]).unwrap_err().to_string();
        assert!(error.contains("auto, container, gvisor"), "{error}");
    }
}
