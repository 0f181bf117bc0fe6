//! Arguments of `sbx run`, `sbx exec`, `sbx shell`, `sbx ps` and `sbx kill`. The words from the first one of a command on belong to the
//! command, also those that begin with a dash.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, Args};

use super::copy::{Volume, volume};
use super::create::SandboxOptions;
use super::running::{CommandOptions, DETACHED_MAX};
use super::time;

/// The service's time limit for code.
const CODE_MAX: Duration = Duration::from_secs(5 * 60);

/// The arguments of `sbx run`.
#[derive(Debug, Args)]
#[command(arg(rm()))]
pub struct RunArguments {
    /// Image, template or snapshot to create the sandbox from
    pub image: String,
    #[command(flatten)]
    pub new: SandboxOptions,
    #[command(flatten)]
    pub running: CommandOptions,
    /// Run the command, or a shell, on a terminal
    #[arg(long, short, conflicts_with = "buffered")]
    pub tty: bool,
    /// Start the command in a sandbox that stays, print its name or id and exit; 'sbx logs' shows the output
    ///
    /// The sandbox ends at its timeout, 5 minutes later, unless --timeout sets another one or 'sbx timeout' changes it. It is not paused when
    /// it is idle. There is no input and no terminal, also with -i and -t.
    #[arg(long, short, conflicts_with = "buffered")]
    pub detach: bool,
    /// Run as this user of the sandbox, a name or a number, instead of root; the group is that of the user
    #[arg(long, short, value_name = "USER", value_parser = user)]
    pub user: Option<String>,
    /// Copy a file or directory into the sandbox before the command starts; repeatable
    ///
    /// A path of this machine has a slash, such as ./data: there are no named volumes. The copy belongs to the user of -u, or to root. With :rw the files that the sandbox has changed are copied back after the command has ended. With nothing at the end sbx says which
    /// ones it has not copied back; :ro means that none are to be.
    #[arg(long, short = 'v', value_name = "LOCAL:PATH[:rw|:ro]", value_parser = OsStringValueParser::new().try_map(|word| volume(&word)))]
    pub volume: Vec<Volume>,
    /// Command to run: a bash command line, or a program and its arguments
    #[arg(trailing_var_arg = true, required_unless_present = "tty", value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The arguments of `sbx exec`.
#[derive(Debug, Args)]
pub struct ExecArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    #[command(flatten)]
    pub running: CommandOptions,
    /// Run the command on a terminal, unless it is detached
    #[arg(long, short, conflicts_with = "buffered")]
    pub tty: bool,
    /// Set an environment variable, or pass yours with NAME alone; repeatable
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Set the environment variables in this file, one NAME=VALUE or NAME on a line; -e overrides them; repeatable
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Run in this directory
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Run as this user of the sandbox, a name or a number, instead of root; the group is that of the user
    #[arg(long, short, value_name = "USER", value_parser = user)]
    pub user: Option<String>,
    /// Fail if the sandbox is paused instead of resuming it
    #[arg(long)]
    pub no_resume: bool,
    /// Start the command, print its execution id and exit; 'sbx logs' shows the output
    ///
    /// A detached command has no time limit unless --timeout sets one, of at most 24h. Its newest 16 MiB of output are stored.
    #[arg(long, short, conflicts_with = "buffered")]
    pub detach: bool,
    /// With --detach, let the command wait this long for 'sbx logs -f' when it would lose output that nobody has read; at most 24h [default: 0]
    #[arg(long, value_name = "TIME", value_parser = reader_wait, requires = "detach")]
    pub reader_timeout: Option<Duration>,
    /// Command to run: a bash command line, or a program and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The arguments of `sbx shell`.
#[derive(Debug, Args)]
pub struct ShellArguments {
    /// Id or name of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Attach to the open terminal with this execution id
    #[arg(long, value_name = "EXECUTION", conflicts_with_all = ["env", "workdir", "user", "command"])]
    pub attach: Option<String>,
    /// Set an environment variable, or pass yours with NAME alone; repeatable
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Start in this directory
    #[arg(long, short, value_name = "DIR")]
    pub workdir: Option<String>,
    /// Run as this user of the sandbox, a name or a number, instead of root; the group is that of the user
    #[arg(long, short, value_name = "USER", value_parser = user)]
    pub user: Option<String>,
    /// Run this instead of a shell: a bash command line, or a program and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The arguments of `sbx code`.
#[derive(Debug, Args)]
pub struct CodeArguments {
    /// Id or name of the sandbox, whose image has a code interpreter
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Language: python, javascript, bash, or a kernel of the image [default: python]
    #[arg(long, short, value_name = "LANGUAGE", conflicts_with = "context")]
    pub language: Option<String>,
    /// Run in this context instead of the default one of the language
    #[arg(long, short, value_name = "CONTEXT")]
    pub context: Option<String>,
    /// Set an environment variable, or pass yours with NAME alone; repeatable
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Interrupt the code after this time, such as 90s; at most 5m
    #[arg(long, value_name = "TIME", value_parser = code_limit, default_value = "5m")]
    pub timeout: Duration,
    /// Write figures and other files of the results to this directory, which is created if it does not exist
    ///
    /// Without it, figures are shown if the terminal can, and otherwise written to a temporary directory.
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Code to run; '-' or nothing reads it from standard input
    #[arg(value_name = "CODE")]
    pub code: Option<String>,
}

/// The arguments of `sbx kill`.
#[derive(Debug, Args)]
pub struct KillArguments {
    /// Id or name of the sandbox; 'sbx rm' terminates the sandbox itself
    #[arg(value_name = "SANDBOX")]
    pub id: String,
    /// Ids of the executions, as shown by 'sbx logs --list SANDBOX'
    #[arg(value_name = "EXECUTION", required = true)]
    pub executions: Vec<String>,
    /// Send this signal to the commands, such as TERM, INT or 15, instead of killing all their processes
    #[arg(long, short, value_name = "SIGNAL")]
    pub signal: Option<String>,
}

/// Parses a user. Docker also accepts a group, which the service takes from the user.
fn user(text: &str) -> Result<String, String> {
    match text.split_once(':') {
        None if !text.is_empty() => Ok(text.to_owned()),
        Some((name, _)) if !name.is_empty() => Err(format!(
            "expected the name or the number of a user, without a group: write -u {name}; the group is that of the user in the sandbox"
        )),
        _ => Err("expected the name or the number of a user; the group is that of the user".to_owned()),
    }
}

/// Parses how long a detached command waits for a reader.
fn reader_wait(text: &str) -> Result<Duration, String> {
    let wait = time(text)?;
    if wait > DETACHED_MAX { Err("expected a time up to 24h".to_owned()) } else { Ok(wait) }
}

/// `--rm`, which users of Docker type: it is always so.
fn rm() -> Arg {
    let arg = Arg::new("rm").long("rm").hide(true).value_parser(removal);
    arg.num_args(0..=1).require_equals(true).default_missing_value("true")
}

/// Parses the value of `--rm`, which changes nothing.
fn removal(text: &str) -> Result<bool, String> {
    if text == "true" {
        return Ok(true);
    }
    Err("'sbx run' always removes its sandbox; 'sbx create' starts one that stays".to_owned())
}

/// Parses the time limit of code.
fn code_limit(text: &str) -> Result<Duration, String> {
    let limit = time(text)?;
    if limit.is_zero() || limit > CODE_MAX {
        return Err("expected a time above 0 and up to 5m".to_owned());
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, NetworkChoice, SbxCommand};

    fn parse(words: &str) -> Result<SbxCommand, String> {
        let parsed = Cli::try_parse_from(["sbx"].into_iter().chain(words.split(' ')));
        parsed.map(|cli| cli.command).map_err(|error| error.to_string())
    }

    fn exec(words: &str) -> ExecArguments {
        match parse(words).unwrap() {
            SbxCommand::Exec(exec) => exec,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_command_needs_no_dashes_before_it() {
        for words in ["exec sb_1 ls -l --json", "exec sb_1 -- ls -l --json"] {
            let exec = exec(words);
            assert_eq!((exec.id.as_str(), exec.command.join(" ").as_str()), ("sb_1", "ls -l --json"));
        }
        let exec = exec("exec -e A=1 sb_1 -w /tmp --timeout 90m sh -c x -- -e B=2");
        assert_eq!((exec.env.len(), exec.workdir.as_deref()), (1, Some("/tmp")));
        assert_eq!(exec.running.timeout, Some(Duration::from_secs(5400)));
        assert_eq!(exec.command.join(" "), "sh -c x -- -e B=2");
        let SbxCommand::Run(run) = parse("run img --memory 4g echo -n hi").unwrap() else { panic!() };
        assert_eq!((run.new.memory, run.command.join(" ").as_str()), (Some(4096), "echo -n hi"));
        let SbxCommand::Shell(shell) = parse("shell sb_1 vim -R notes").unwrap() else { panic!() };
        assert_eq!(shell.command.join(" "), "vim -R notes");
    }

    #[test]
    fn a_terminal_is_asked_for_as_with_docker() {
        let exec = exec("exec -it sb_1 bash");
        assert!(exec.tty && exec.running.stdin && exec.command == ["bash"]);
        for words in [
            "run -it img",
            "run --rm -it img",
            "run --rm=true --interactive --tty img",
            "run --interactive --tty --rm img",
        ] {
            let SbxCommand::Run(run) = parse(words).unwrap() else { panic!() };
            assert!(run.tty && run.running.stdin && run.command.is_empty(), "{words}");
        }
        let SbxCommand::Run(run) = parse("run --cpus 2 --net none -l a=b img ls").unwrap() else { panic!() };
        assert_eq!((run.new.cpu, run.new.network), (Some(2), Some(NetworkChoice::Offline)));
        assert_eq!(run.new.metadata, [("a".to_owned(), "b".to_owned())]);
        assert!(parse("run --rm=false img ls").unwrap_err().contains("'sbx create'"));
        // As with Docker, the terminal is left out.
        assert!(parse("exec -t --detach sb_1 bash").is_ok());
        for wrong in ["exec -t --buffered sb_1 bash", "exec -it sb_1", "run img"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_user_has_no_group() {
        assert_eq!(exec("exec -u 1000 sb_1 id").user.as_deref(), Some("1000"));
        for (line, part) in [
            ("exec -u 1000:1000 sb_1 id", "write -u 1000;"),
            ("run -u app:www img id", "write -u app;"),
            ("exec -u :7 sb_1 id", "the name or the number of a user"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn only_a_detached_command_may_wait_for_a_reader() {
        assert_eq!(exec("exec -d sb_1 make").reader_timeout, None);
        let waiting = exec("exec -d --reader-timeout 2m sb_1 make");
        assert_eq!(waiting.reader_timeout, Some(Duration::from_secs(120)));
        for wrong in ["exec --reader-timeout 2m sb_1 make", "exec -d --reader-timeout 25h sb_1 make"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn code_runs_for_five_minutes_at_most() {
        let timeout = |words: &str| {
            let SbxCommand::Code(code) = parse(words).unwrap() else { panic!() };
            code.timeout
        };
        assert_eq!(timeout("code sb_1 x"), CODE_MAX);
        assert_eq!(timeout("code --timeout 90s sb_1 x"), Duration::from_secs(90));
        for wrong in ["0", "6m"] {
            let error = parse(&format!("code --timeout {wrong} sb_1 x")).unwrap_err();
            assert!(error.contains("up to 5m"), "{error}");
        }
    }
}
