//! The command line, as a person types it. What is about files, events and keys is in `cli/more.rs`.

mod more;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

pub use more::{CpArguments, EventsArguments, KeyVerb, Volume};
use more::{limit, volume};

/// Isolated Linux sandboxes from a terminal.
///
/// The service and the key come from flags, else from SANDBOXD_URL, SANDBOXD_API_KEY and SANDBOXD_CERTIFICATE, else from the profile that
/// 'sbx login' keeps, else from the daemon of this machine, for who may read its key.
#[derive(Debug, Parser)]
#[command(name = "sbx", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub verb: Verb,
}

/// What every command knows.
#[derive(Debug, Clone, Default, Args)]
pub struct Global {
    /// Print JSON, for programs
    #[arg(long, global = true)]
    pub json: bool,
    /// The profile that 'sbx login' made [default: default]
    #[arg(long, global = true, value_name = "NAME", env = "SBX_PROFILE")]
    pub profile: Option<String>,
    /// Where the service is, over environment and profile
    #[arg(long, global = true, value_name = "URL")]
    pub url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run one command in a sandbox of its own, and remove it
    Run(RunArguments),
    /// Make a sandbox and print its id
    Create(CreateArguments),
    /// Run a command in a sandbox
    Exec(ExecArguments),
    /// A terminal in a sandbox
    Shell(ShellArguments),
    /// What a detached command printed; without its id, which there are
    Logs(LogsArguments),
    /// List sandboxes
    Ls(LsArguments),
    /// List the images that are on the service, and how far it is with those that it fetches
    Images,
    /// Everything about sandboxes, as JSON
    Inspect(Ids),
    /// The processes in a sandbox
    Ps(ProbeArguments),
    /// The processes in a sandbox by the processor they use, again and again until Ctrl-C
    Top(TopArguments),
    /// Stop all processes of sandboxes where they are
    Pause(Ids),
    /// Let the processes of paused sandboxes go on
    Resume(Ids),
    /// Terminate sandboxes: their processes, files and disks are gone
    Rm(RmArguments),
    /// Copy a file or a directory into a sandbox, out of one, or from one to another
    Cp(CpArguments),
    /// What happened, and with --follow what happens
    Events(EventsArguments),
    /// Make, list and revoke API keys, on the machine of the service
    #[command(subcommand)]
    Key(KeyVerb),
    /// Measure the service from here
    Bench(BenchArguments),
    /// Keep a service and a key under a name, in a file that only you can read
    Login(LoginArguments),
    /// List the ports of a sandbox that are exposed
    Ports(ProbeArguments),
    /// Let ports of a sandbox be reached at URLs of their own, and print these
    Expose(ExposeArguments),
    /// Close ports that are exposed
    Unexpose(UnexposeArguments),
    /// Show an exposed port in a browser; without one, the service's description of its interface
    Open(OpenArguments),
    /// Print a script that completes commands and ids of live sandboxes in a shell
    Completion {
        /// For which one
        shell: Shell,
    },
    /// Write manual pages into a directory
    #[command(hide = true)]
    Man {
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// What could stand at the end of a line; the completion scripts ask
    #[command(hide = true, name = "__complete")]
    Complete {
        #[arg(last = true)]
        words: Vec<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What a new sandbox is to be.
#[derive(Debug, Default, Args)]
pub struct New {
    /// vCPUs: 2, 4 or 8
    #[arg(long, value_name = "N")]
    pub cpu: Option<u32>,
    /// Memory in MB, 2048 to 16384
    #[arg(long, value_name = "MB")]
    pub memory: Option<u32>,
    /// Disk in MB, 5120 to 51200
    #[arg(long, value_name = "MB")]
    pub disk: Option<u32>,
    /// An environment variable; NAME alone takes over yours; may be repeated
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Working directory of commands
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// A tag; may be repeated
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// The only domains that it may reach, such as example.com or *.example.org; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    pub allow: Vec<String>,
    /// How long to wait while its image is fetched or there is no room, such as 30s or 5m [default: 2m for room; for an image
    /// 10m, and on a terminal as long as it takes]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub wait: Option<Duration>,
}

#[derive(Debug, Args)]
pub struct CreateArguments {
    /// Name of an image of the service
    pub image: String,
    #[command(flatten)]
    pub new: New,
    /// Running time after which it is terminated, such as 10m or 24h [default: 5m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Time without a command after which it is paused; 0 for never [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub idle: Option<Duration>,
}

/// How a command is run.
#[derive(Debug, Default, Args)]
pub struct Running {
    /// Feed our standard input to the command: text of up to 15 MiB is read to its end first; what is longer, or no text, is fed
    /// while the command runs
    #[arg(long, short = 'i')]
    pub stdin: bool,
    /// Kill the command after this time, such as 90s; 24h at most, with --buffered 5m [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = limit)]
    pub timeout: Option<Duration>,
    /// Wait for its end and print what it wrote in one go, up to 16 MiB a stream; without this its output comes line by line
    #[arg(long)]
    pub buffered: bool,
}

#[derive(Debug, Args)]
pub struct RunArguments {
    /// Name of an image of the service
    pub image: String,
    #[command(flatten)]
    pub new: New,
    #[command(flatten)]
    pub running: Running,
    /// Copy a directory or a file of yours in before the command begins; with :rw copy it back out when it has ended; may be
    /// repeated
    #[arg(long, short = 'v', value_name = "LOCAL:PATH[:rw]", value_parser = OsStringValueParser::new().try_map(|word| volume(&word)))]
    pub volume: Vec<Volume>,
    /// One argument is a bash command line; several are a program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ExecArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    #[command(flatten)]
    pub running: Running,
    /// An environment variable; NAME alone takes over yours; may be repeated
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Where it runs
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Fail in a paused sandbox instead of resuming it
    #[arg(long)]
    pub no_resume: bool,
    /// Print its id and leave it to itself, without a time limit but one that is given, of 24h at most; see 'sbx logs'
    #[arg(long, short, conflicts_with = "buffered")]
    pub detach: bool,
    /// One argument is a bash command line; several are a program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ShellArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Come back to a terminal that is open, by its execution
    #[arg(long, value_name = "EXECUTION", conflicts_with_all = ["env", "workdir", "command"])]
    pub attach: Option<String>,
    /// An environment variable; NAME alone takes over yours; may be repeated
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Where it begins
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// What runs in place of a shell: one argument is a bash command line, several are a program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct LogsArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// The execution, as 'sbx exec --detach' printed it
    #[arg(value_name = "EXECUTION")]
    pub execution: Option<String>,
    /// Go on until it has ended
    #[arg(long, short, requires = "execution")]
    pub follow: bool,
}

#[derive(Debug, Args)]
pub struct LsArguments {
    /// Terminated ones too
    #[arg(long, short)]
    pub all: bool,
    /// Only those in this state
    #[arg(long, value_name = "STATE", value_parser = ["running", "paused", "terminated"])]
    pub state: Option<String>,
    /// Only those of this image
    #[arg(long, value_name = "NAME")]
    pub image: Option<String>,
    /// Only those with this tag; may be repeated
    #[arg(long, short, value_name = "KEY=VALUE", value_parser = pair)]
    pub metadata: Vec<(String, String)>,
    /// Only ids, one a line
    #[arg(long, short)]
    pub quiet: bool,
    /// At most so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1000)]
    pub limit: usize,
}

#[derive(Debug, Args)]
pub struct Ids {
    /// The sandboxes
    #[arg(value_name = "SANDBOX", required = true)]
    pub ids: Vec<String>,
}

#[derive(Debug, Args)]
pub struct RmArguments {
    /// The sandboxes
    #[arg(value_name = "SANDBOX", required_unless_present = "all")]
    pub ids: Vec<String>,
    /// Every sandbox of the account that is not terminated
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
}

#[derive(Debug, Args)]
pub struct ProbeArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
}

#[derive(Debug, Args)]
pub struct ExposeArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// The ports that programs in it listen on
    #[arg(value_name = "PORT", required = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub ports: Vec<u16>,
    /// For anybody who has the URL; without this a key or a token is needed
    #[arg(long)]
    pub public: bool,
    /// Refuse traffic while the sandbox is paused instead of resuming it
    #[arg(long)]
    pub no_resume: bool,
}

#[derive(Debug, Args)]
pub struct UnexposeArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// The ports
    #[arg(value_name = "PORT", required = true)]
    pub ports: Vec<u16>,
}

#[derive(Debug, Args)]
pub struct OpenArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX", requires = "port")]
    pub id: Option<String>,
    /// The port, which has to be exposed
    #[arg(value_name = "PORT")]
    pub port: Option<u16>,
    /// How long the URL of a private port is good for, such as 10m; a week at most
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = time)]
    pub time: Duration,
}

#[derive(Debug, Args)]
pub struct TopArguments {
    /// The sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Between two looks
    #[arg(long, short, value_name = "TIME", default_value = "2s", value_parser = time)]
    pub every: Duration,
    /// Stop after so many looks; one where the output is no terminal
    #[arg(long, short = 'n', value_name = "N")]
    pub looks: Option<u32>,
}

#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Image of the sandboxes
    #[arg(default_value = "ubuntu:24.04")]
    pub image: String,
    /// How often each thing is done
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub rounds: u32,
}

#[derive(Debug, Args)]
pub struct LoginArguments {
    /// Make a certificate with this SHA-256 fingerprint the one to trust, without asking
    #[arg(long, value_name = "SHA256", conflicts_with_all = ["certificate", "system"])]
    pub fingerprint: Option<String>,
    /// Trust the certificates in this file in PEM
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    pub certificate: Option<PathBuf>,
    /// Trust the authorities of this machine
    #[arg(long)]
    pub system: bool,
    /// Read the key from this file instead of standard input
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it has to be KEY=VALUE".to_owned()),
    }
}

/// `500ms`, `30s`, `5m`, `24h`, or seconds without a unit.
fn time(text: &str) -> Result<Duration, String> {
    let fault = || "it has to be a number with ms, s, m or h, such as 30s".to_owned();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| fault())?;
    let unit_ms = match &text[digits..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(fault()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(fault)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_are_read_with_their_units() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("24h", 86_400_000), ("7", 7000)]
        {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "1d", "-1s", "1.5s", "99999999999999999999", "18446744073709551615h"] {
            assert!(time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_command_stands_behind_two_dashes() {
        let cli = Cli::try_parse_from(["sbx", "run", "-e", "A=1", "img", "--", "ls", "-l"]).unwrap();
        let Verb::Run(run) = cli.verb else { panic!() };
        assert_eq!(
            (run.image.as_str(), run.command.as_slice()),
            ("img", &["ls".to_owned(), "-l".to_owned()][..])
        );
        assert!(Cli::try_parse_from(["sbx", "run", "img"]).is_err());
        assert!(Cli::try_parse_from(["sbx", "rm"]).is_err());
    }
}
