//! Hints for users of Docker. If the command line is refused, `main` asks here whether a command or an option of `docker` was meant, and
//! what sbx has instead. A hint replaces the suggestion of clap, which compares the spelling: for `stop` it suggests `top`.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;

/// Names with the same hint.
type Names = &'static [&'static str];

const PROCESSES: &str = "'sbx ls' lists sandboxes; 'sbx ps SANDBOX' lists the processes in one";
const NETWORKS: &str = "each sandbox has a network of its own, which reaches all public addresses: --network of 'sbx create' restricts it, and \
    'sbx network allow' changes that";
const IMAGES: &str = "'sbx images' lists images; 'sandboxd image' on the machine of the service pulls, imports and removes them";
const NO_PRIVILEGES: &str =
    "a sandbox has no privileges or devices of the host; --isolation sets what separates it from the host";
const COPIES: &str =
    "nothing is mounted; -v LOCAL:PATH of 'sbx run' copies files into the sandbox, and 'sbx cp' copies later";
const INSPECTED: &str = "it prints JSON, which 'jq' can select from: sbx inspect SANDBOX | jq -r '.[].state'";
const HOST_NAME: &str = "--hostname has no counterpart, as the host name is made from the id of the sandbox; --name names the sandbox";
const NO_COUNTERPART: &str = "leave it out: sbx has no counterpart";
const ISOLATED: &str = "leave it out: nothing of the host or of other sandboxes is shared";
const ADDRESSES: &str = "leave it out: the service chooses the addresses of a sandbox";
const UNCONNECTED: &str = "not possible: sandboxes are not connected to each other, and do not reach each other's exposed ports; run both programs in one \
    sandbox, where they reach each other at localhost: 'sbx exec -d SANDBOX COMMAND' starts each";
const KEPT: &str = "'sbx run' has no such option: 'sbx create' has, and 'sbx exec -d SANDBOX COMMAND' starts a command in its sandbox";
const MEMORY: &str = "leave it out: --memory sets the memory, and nothing is swapped";
const NO_COMMAND: &str = "'sbx create' starts no command: 'sbx run -d IMAGE COMMAND' does, and 'sbx exec SANDBOX COMMAND' runs one later";
const FAILED_BUILDS: &str = "'sbx template rm --failed' deletes what is left of failed builds";
const TABLES: &str = "--json prints everything, which 'jq' can select from";

/// Commands of Docker, and common names of such commands, that sbx does not have.
const COMMANDS: &[(Names, &str)] = &[
    (&["stop"], "'sbx pause SANDBOX' freezes a sandbox and keeps it, 'sbx rm SANDBOX' terminates it"),
    (&["start", "unpause"], "'sbx resume SANDBOX' resumes a paused sandbox; so does the next command"),
    (
        &["restart"],
        "'sbx pause SANDBOX' and 'sbx resume --cold SANDBOX' end all processes and keep the disk, and start nothing again: 'sbx exec -d SANDBOX \
         COMMAND' does, and the start command of a template ('sbx build --start') starts with each new sandbox",
    ),
    (
        &["commit"],
        "'sbx snapshot create --name NAME SANDBOX' stores the disk, and 'sbx run NAME COMMAND' starts from it",
    ),
    (
        &["attach"],
        "'sbx logs -f SANDBOX EXECUTION' follows a command; 'sbx shell --attach EXECUTION SANDBOX' attaches to a terminal",
    ),
    (&["wait"], "'sbx logs -f SANDBOX EXECUTION' waits for a detached command and exits with its code"),
    (&["port"], "'sbx ports SANDBOX' lists exposed ports, 'sbx expose SANDBOX PORT' exposes one"),
    (&["compose"], UNCONNECTED),
    (&["history"], "'sbx template logs TEMPLATE' shows how a template was built"),
    (&["diff"], "'sbx exec SANDBOX find / -xdev -mmin -60' lists the files that changed in the last hour"),
    (
        &["search"],
        "'sbx images' lists images; 'sbx run NAME COMMAND' also pulls others of registries, if the operator allows it",
    ),
    (
        &["logout"],
        "'sbx login' saves another key; the keys are in sbx/config.toml in $XDG_CONFIG_HOME or ~/.config",
    ),
    (
        &["context"],
        "'sbx login --profile NAME' saves another service, and --profile NAME or SBX_PROFILE selects it",
    ),
    (&["rename"], "--name of 'sbx create' names a sandbox, for as long as it lives"),
    (&["update"], "'sbx timeout' and 'sbx network' change a sandbox; its size is set when it is created"),
    (&["container"], "leave 'container' out: 'sbx ls', 'sbx run', 'sbx rm SANDBOX'"),
    (
        &["pull"],
        "'sbx run' and 'sbx create' pull a missing image; 'sandboxd image pull NAME' does so on the machine of the service",
    ),
    (&["image", "load", "import"], IMAGES),
    (
        &["rmi"],
        "'sbx template rm' and 'sbx snapshot rm' delete your own; 'sandboxd image remove NAME' removes an image on the machine of the service",
    ),
    (&["tag", "push"], "'sbx build -t NAME' names a template; templates stay in the service"),
    (
        &["save", "export"],
        "'sbx snapshot create SANDBOX' stores the disk; 'sbx cp SANDBOX:DIR -' prints a tar archive",
    ),
    (&["volume"], COPIES),
    (
        &["system", "prune"],
        "'sbx usage' shows what you use; 'sbx rm', 'sbx snapshot rm' and 'sbx template rm' free it",
    ),
    (&["buildx", "builder"], "'sbx build -t NAME [PATH]' builds a template from a Dockerfile"),
    (&["version"], "'sbx --version' prints the version of sbx, 'sbx info' that of the service"),
    (&["remove", "delete", "terminate", "destroy"], "'sbx rm SANDBOX' terminates a sandbox"),
    (&["sh", "bash", "ssh", "enter"], "'sbx shell SANDBOX' opens a terminal"),
    (&["serve", "daemon"], "'sandboxd serve' starts the service"),
];

/// Options of Docker's commands that those of sbx do not have.
const OPTIONS: &[(Names, Names, &str)] = &[
    (
        &["run", "create"],
        &["-P", "--publish-all", "--expose"],
        "-p PORT gives a port a URL, and so does 'sbx expose SANDBOX PORT' later",
    ),
    (
        &["create"],
        &["-u", "--user"],
        "commands run as root; -u of 'sbx run' and 'sbx exec' runs one as another user of the sandbox",
    ),
    (&["create"], &["-i", "--interactive", "-t", "--tty", "-d", "--detach"], NO_COMMAND),
    (
        &["run", "create"],
        &["--entrypoint"],
        "the entrypoint of an image is not used: write the program after the image",
    ),
    (&["run", "create"], &["--hostname"], HOST_NAME),
    (
        &["run", "create", "exec"],
        &[
            "--privileged",
            "--cap-add",
            "--cap-drop",
            "--device",
            "--gpus",
            "--security-opt",
            "--runtime",
            "--userns",
        ],
        NO_PRIVILEGES,
    ),
    (
        &["run", "create"],
        &["--ipc", "--pid", "--uts", "--cgroupns", "--cgroup-parent", "--group-add", "--sysctl"],
        ISOLATED,
    ),
    (&["run", "create"], &["--ip", "--ip6", "--mac-address", "--link-local-ip"], ADDRESSES),
    (&["run", "create"], &["--link", "--network-alias", "--net-alias"], UNCONNECTED),
    (
        &["run", "create"],
        &[
            "--memory-swap",
            "--memory-reservation",
            "--memory-swappiness",
            "--kernel-memory",
            "--shm-size",
            "--oom-kill-disable",
            "--oom-score-adj",
        ],
        MEMORY,
    ),
    (
        &["run", "create"],
        &["--stop-timeout", "--stop-signal"],
        "leave it out: the processes are killed when a sandbox ends; 'sbx kill --signal TERM' ends a command before",
    ),
    (
        &["run", "create"],
        &[
            "--pids-limit",
            "--log-driver",
            "--log-opt",
            "--attach",
            "-a",
            "--health-cmd",
            "--health-interval",
            "--health-retries",
            "--health-start-period",
            "--health-timeout",
            "--no-healthcheck",
            "--sig-proxy",
            "-q",
            "--quiet",
            "-c",
            "--cpu-shares",
            "--cpu-period",
            "--cpu-quota",
            "--cpuset-cpus",
            "--cpuset-mems",
            "--blkio-weight",
            "--annotation",
            "--label-file",
            "--volume-driver",
            "--disable-content-trust",
            "--domainname",
        ],
        NO_COUNTERPART,
    ),
    (&["run", "create"], &["--storage-opt"], "--disk 10g sets the size of the disk"),
    (&["run"], &["--pause-on-timeout", "--idle", "--no-auto-resume"], KEPT),
    (&["run", "create"], &["--mount", "--volumes-from"], COPIES),
    (&["run", "create"], &["--tmpfs"], "leave it out: all files end with their sandbox"),
    (
        &["run", "create"],
        &["--read-only"],
        "leave it out: each sandbox has a disk of its own, which ends with it",
    ),
    (&["run", "create"], &["--ulimit"], "the command line can set limits, such as 'ulimit -n 4096; COMMAND'"),
    (
        &["run", "create"],
        &["--add-host"],
        "a line in /etc/hosts of the sandbox adds a name; 'sbx exec' and 'sbx cp' can write it",
    ),
    (
        &["run", "create"],
        &["--dns", "--dns-search", "--dns-option"],
        "the service resolves names; --network sets which domains are allowed",
    ),
    (&["create"], &["-v", "--volume"], COPIES),
    (
        &["create"],
        &["--rm"],
        "leave it out: a sandbox ends at its --timeout and nothing of it stays; 'sbx run' removes its sandbox after the command",
    ),
    (
        &["run", "create"],
        &["--restart"],
        "a sandbox ends at its timeout; --pause-on-timeout of 'sbx create' pauses it instead",
    ),
    (
        &["run", "create", "build"],
        &["--pull"],
        "a missing image is pulled; 'sandboxd image pull NAME' on the machine of the service pulls it again",
    ),
    (
        &["run", "create", "build"],
        &["--platform"],
        "leave it out: sandboxes and images have the architecture of the service's host",
    ),
    (&["run", "create"], &["--init"], "leave it out: every sandbox has an init process"),
    (
        &["build"],
        &["--secret", "--ssh"],
        "leave it out: steps get no secrets; -e of 'sbx create' and 'sbx run' passes one to a sandbox, --build-arg values that may be stored",
    ),
    (
        &["build"],
        &["--iidfile"],
        "'sbx build' prints the id on standard output: ID=$(sbx build -t NAME PATH)",
    ),
    (&["build"], &["--label"], "-m adds metadata to the template"),
    (
        &["build"],
        &["--cache-from", "--cache-to"],
        "leave it out: the service keeps the results of steps, and --no-cache runs them again",
    ),
    (
        &["run", "create"],
        &["--cidfile"],
        "'sbx create' prints the id on standard output: ID=$(sbx create IMAGE); --name names the sandbox",
    ),
    (
        &["run", "exec"],
        &["--detach-keys"],
        "leave it out: no keys leave a terminal; 'sbx exec -d' starts a command that goes on without one",
    ),
    (
        &["build"],
        &["--rm", "--progress", "--load", "--push"],
        "leave it out: it has no meaning for templates",
    ),
    (
        &["logs"],
        &["--since", "--until", "-t", "--timestamps", "--details"],
        "the output has no times: --tail N prints the last lines, 'sbx events SANDBOX' when commands began and ended",
    ),
    (&["ps"], &["-a", "--all", "-q", "--quiet", "-f", "--filter", "--format"], PROCESSES),
    (
        &["ls"],
        &["-f", "--filter", "--name"],
        "'sbx ls NAME' selects by a part of the name; --state, --image and --metadata by others",
    ),
    (&["ls"], &["-l", "--latest", "--last"], "-n 1 lists the newest one"),
    (&["ls"], &["-s", "--size"], "'sbx stats' shows the size of disks"),
    (&["stats"], &["-a", "--all"], "leave it out: terminated sandboxes use nothing"),
    (&["stats"], &["--format", "--no-trunc"], TABLES),
    (&["ls"], &["--no-trunc"], "--wide shows more, --json everything"),
    (&["ls", "images", "info", "events"], &["--format"], TABLES),
    (&["inspect"], &["--format", "-f"], INSPECTED),
    (&["images"], &["-q", "--quiet", "-f", "--filter"], TABLES),
    (&["rm"], &["-v", "--volumes"], "leave it out: the disk ends with its sandbox"),
    (&["cp"], &["-L", "--follow-link"], "leave it out: a link that is given as FROM is followed"),
    (
        &["cp"],
        &["-r", "-R", "-a", "--archive"],
        "leave it out: directories are copied with all they contain; the copy belongs to root, or to the user of --chown",
    ),
];

/// Arguments that a command of Docker can do without.
const MISSING: &[(&str, &str, &str)] = &[
    ("ps", "<SANDBOX>", PROCESSES),
    ("run", "<COMMAND>...", "the CMD of an image is not used: write the command, or -it for a shell"),
    ("exec", "<COMMAND>...", "'sbx shell SANDBOX' opens a terminal"),
    (
        "kill",
        "<EXECUTION>...",
        "'sbx rm SANDBOX' terminates the sandbox; 'sbx logs --list SANDBOX' lists executions",
    ),
];

/// Commands with a word too many: the command, its subcommand or nothing, and the hint.
const EXTRA: &[(&str, &str, &str)] = &[
    ("snapshot", "create", "'sbx snapshot create --name NAME SANDBOX' names the snapshot"),
    ("create", "", NO_COMMAND),
];

/// The command, a part of the argument, whether the value is meant, and the hint.
type ValueHint = (Names, &'static str, fn(&str) -> bool, &'static str);

/// Values that Docker accepts.
const VALUES: &[ValueHint] = &[
    (
        &["expose"],
        "<PORT>",
        |value| value.contains(':'),
        "only the port in the sandbox: it gets a URL instead of a port of the host",
    ),
    (
        &["expose"],
        "<PORT>",
        |value| begins_with_digit(value) && value.contains('-'),
        "write each port of a range: 'sbx expose SANDBOX 8000 8001'",
    ),
    (
        &["expose"],
        "<PORT>",
        |value| begins_with_digit(value) && value.contains('/'),
        "write the port alone: only HTTP passes through its URL",
    ),
    (
        &["expose"],
        "<PORT>",
        |value| !begins_with_digit(value),
        "the sandbox comes first: 'sbx expose SANDBOX PORT'",
    ),
    (&["run", "create"], "--metadata", any, "-m adds a tag; --memory 4g sets the memory"),
    (&["run", "create"], "--network", any, NETWORKS),
    (&["timeout"], "<TIME>", any, "the time comes first: 'sbx timeout 1h SANDBOX'"),
];

fn any(_: &str) -> bool {
    true
}

fn begins_with_digit(value: &str) -> bool {
    value.starts_with(|first: char| first.is_ascii_digit())
}

/// Adds the hint for a user of Docker, if there is one. `words`: the command line without the name of the program.
pub fn explain(error: &mut clap::Error, words: &[String]) {
    if is_hostname(error, words) {
        let message =
            format!("'-h' prints the help, and takes no value: {HOST_NAME}; '-h' alone prints the help");
        *error = clap::Error::raw(ErrorKind::UnknownArgument, message + "\n").with_cmd(&Cli::command());
        return;
    }
    remove_hidden(error);
    let Some(hint) = hint(error, words) else {
        if error.kind() == ErrorKind::UnknownArgument {
            // What clap suggests is to pass the option to a command in the sandbox, which is seldom meant.
            error.remove(ContextKind::Suggested);
        }
        return;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    error.remove(ContextKind::SuggestedArg);
    if error.kind() == ErrorKind::UnknownArgument {
        // The usage line would show the option that clap suggests.
        error.remove(ContextKind::Usage);
    }
    let hints = std::iter::once(hint.to_owned()).chain(further_hints(error, words));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(hints.map(Into::into).collect()));
}

/// Whether the help was asked for by the `-h HOST` of Docker.
fn is_hostname(error: &clap::Error, words: &[String]) -> bool {
    let is_new = command(words).is_some_and(|command| matches!(command.as_str(), "run" | "create"));
    let at = words.iter().position(|word| word == "-h");
    error.kind() == ErrorKind::DisplayHelp && is_new && at.is_some_and(|at| at + 1 < words.len())
}

/// Removes commands from the suggestions that are not for people, such as the one of the completion scripts.
fn remove_hidden(error: &mut clap::Error) {
    let Some(ContextValue::Strings(mut names)) = error.remove(ContextKind::SuggestedSubcommand) else {
        return;
    };
    let root = Cli::command();
    names.retain(|name| !root.find_subcommand(name).is_some_and(clap::Command::is_hide_set));
    if !names.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(names));
    }
}

fn hint(error: &clap::Error, words: &[String]) -> Option<&'static str> {
    match (error.kind(), error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(name)), _) => {
            let at = words.iter().position(|word| word == name)?;
            match command(&words[..at]) {
                Some(command) => match (command.as_str(), name.as_str()) {
                    ("network", _) => Some(NETWORKS),
                    ("template", "prune") => Some(FAILED_BUILDS),
                    _ => None,
                },
                None => COMMANDS.iter().find(|(names, _)| has(names, name)).map(|(_, hint)| *hint),
            }
        }
        (ErrorKind::UnknownArgument, _, Some(ContextValue::String(extra))) if !extra.starts_with('-') => {
            let command = command(words)?;
            let has_word = |name: &str| words.iter().any(|word| word == name);
            let row =
                EXTRA.iter().find(|(name, sub, _)| command == *name && (sub.is_empty() || has_word(sub)));
            row.map(|(.., hint)| *hint)
        }
        (ErrorKind::UnknownArgument, _, Some(ContextValue::String(option))) => {
            option_hint(&command(words)?, option)
        }
        (ErrorKind::MissingRequiredArgument, _, Some(ContextValue::Strings(missing))) => {
            let (command, [argument]) = (command(words)?, missing.as_slice()) else { return None };
            let row = MISSING.iter().find(|(name, needed, _)| command == *name && argument == needed);
            row.map(|(.., hint)| *hint)
        }
        (ErrorKind::ValueValidation, _, Some(ContextValue::String(argument))) => {
            let command = command(words)?;
            let value = match error.get(ContextKind::InvalidValue) {
                Some(ContextValue::String(value)) => value.as_str(),
                _ => "",
            };
            let row = VALUES.iter().find(|(commands, part, is_meant, _)| {
                has(commands, &command) && argument.contains(*part) && is_meant(value)
            });
            row.map(|(.., hint)| *hint)
        }
        _ => None,
    }
}

fn option_hint(command: &str, option: &str) -> Option<&'static str> {
    let option = option.split('=').next()?;
    let row = OPTIONS.iter().find(|(commands, options, _)| has(commands, command) && has(options, option));
    row.map(|(.., hint)| *hint)
}

/// The hints of further options of Docker, because clap names only the first unknown one. Those of a command in the sandbox do not count: it
/// begins after the image, which is taken to be the first word after another one that is no option.
fn further_hints(error: &clap::Error, words: &[String]) -> Vec<String> {
    let Some(ContextValue::String(first)) = error.get(ContextKind::InvalidArg) else { return Vec::new() };
    let (ErrorKind::UnknownArgument, Some(command)) = (error.kind(), command(words)) else {
        return Vec::new();
    };
    let is_option = |word: &str| word.starts_with('-');
    let image = words.windows(2).position(|pair| !is_option(&pair[0]) && !is_option(&pair[1]));
    let before = &words[..image.map_or(words.len(), |at| at + 1)];
    let name = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let others = before.iter().filter(|word| is_option(word) && name(word) != name(first));
    others.filter_map(|word| Some(format!("{word}: {}", option_hint(&command, word)?))).collect()
}

fn has(names: &[&str], name: &str) -> bool {
    names.contains(&name)
}

/// The name of the first command of sbx among the words.
fn command(words: &[String]) -> Option<String> {
    let root = Cli::command();
    words.iter().find_map(|word| root.find_subcommand(word)).map(|found| found.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn refusal(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut error = Cli::try_parse_from(["sbx".to_owned()].into_iter().chain(words.clone())).unwrap_err();
        explain(&mut error, &words);
        error.to_string()
    }

    #[test]
    fn what_docker_has_is_named_as_sbx_has_it() {
        for (line, part) in [
            ("stop web", "'sbx pause SANDBOX'"),
            ("start web", "'sbx resume SANDBOX'"),
            ("commit web mine", "'sbx snapshot create"),
            ("pull python:3.12", "'sandboxd image pull NAME'"),
            ("container ls", "'sbx ls'"),
            ("stats -a", "terminated"),
            ("template prune", "'sbx template rm --failed'"),
            ("ls --name web", "'sbx ls NAME'"),
            ("ls --filter name=web", "'sbx ls NAME'"),
            ("create --rm img", "--timeout"),
            ("network ls", "--network"),
            ("ps", "'sbx ls'"),
            ("ps -aq", "'sbx ls'"),
            ("run -P img serve", "'sbx expose SANDBOX PORT'"),
            ("create -u nobody img", "'sbx exec'"),
            ("create -it img bash", "'sbx run -d IMAGE COMMAND'"),
            ("create img sleep 1000", "'sbx run -d IMAGE COMMAND'"),
            ("run --hostname web img ls", "--name"),
            ("run --memory-swap 1g img ls", "--memory"),
            ("run --stop-timeout 3 img ls", "'sbx kill --signal TERM'"),
            ("run --network-alias db img ls", "both programs in one sandbox"),
            ("run --link db img ls", "not connected"),
            ("restart web", "start nothing again"),
            ("run --storage-opt size=10G img ls", "--disk 10g"),
            ("run -d --pause-on-timeout img ls", "'sbx create' has"),
            ("run -d --idle 0 img ls", "'sbx create' has"),
            ("expose 8080 my-app", "the sandbox comes first"),
            ("expose web 6379/tcp", "only HTTP"),
            ("expose web 8000-8002", "each port of a range"),
            ("run --shm-size 1g img ls", "--memory"),
            ("run --pid host img ls", "nothing of the host"),
            ("run --mac-address 02:00:00:00:00:01 img ls", "addresses"),
            ("run --pids-limit 9 img ls", "no counterpart"),
            ("run -q img ls", "no counterpart"),
            ("cp -L web:a .", "followed"),
            ("cp -a . web:", "--chown"),
            ("search ubuntu", "'sbx images'"),
            ("logout", "'sbx login'"),
            ("context use work", "--profile"),
            ("run --privileged img id", "--isolation"),
            ("run --network host img id", "'sbx network allow'"),
            ("run -m 4g img id", "--memory 4g"),
            ("run img", "CMD"),
            ("kill web", "'sbx rm SANDBOX'"),
            ("logs --since 1h web", "--tail N"),
            ("expose web 8080:80", "URL"),
            ("timeout web 1h", "'sbx timeout 1h SANDBOX'"),
            ("snapshot create web mine", "--name NAME"),
            ("compose up", "both programs in one sandbox"),
            ("history img", "'sbx template logs"),
            ("diff web", "'sbx exec"),
            ("run --ulimit nofile=9 img ls", "ulimit -n"),
            ("create --add-host a:1 img", "/etc/hosts"),
            ("run --dns 192.0.2.1 img ls", "--network"),
            ("run --read-only img ls", "leave it out"),
            ("create --tmpfs /tmp img", "leave it out"),
            ("cp -r . web:", "leave it out"),
            ("inspect -f x web", "jq -r"),
            ("inspect --format x web", "jq -r"),
            ("build --secret id=a -t x .", "--build-arg"),
            ("run --cidfile f img ls", "'sbx create'"),
            ("exec -it --detach-keys ctrl-x web bash", "'sbx exec -d'"),
            ("rm -fv web", "leave it out"),
        ] {
            let text = refusal(line);
            assert!(text.contains("tip: ") && text.contains(part), "{line}: {text}");
            assert!(!text.contains("similar") && !text.contains("as a value"), "{line}: {text}");
        }
    }

    #[test]
    fn a_host_name_is_not_help() {
        assert!(refusal("run -h web ubuntu ls").contains("--hostname has no counterpart"));
        for line in ["run -h", "run ubuntu -h", "run --help", "logs -h"] {
            assert!(refusal(line).contains("Usage: sbx"), "{line}");
        }
    }

    #[test]
    fn further_options_of_docker_are_named_at_once() {
        let text = refusal("run --ipc host --pids-limit=9 --rm img ls --mac-address");
        assert!(
            text.contains("nothing of the host") && text.contains("--pids-limit=9: leave it out"),
            "{text}"
        );
        assert!(!text.contains("--mac-address"), "{text}");
    }

    #[test]
    fn an_unknown_option_is_not_said_to_be_a_value() {
        for line in ["run --no-such-option img ls", "exec --no-such-option web ls"] {
            assert!(!refusal(line).contains("as a value"), "{}", refusal(line));
        }
    }

    #[test]
    fn other_mistakes_have_the_suggestions_of_clap() {
        for (line, part) in [
            ("exce web ls", "'exec'"),
            ("run --memmory 4g img ls", "'--memory'"),
            ("snapshot stop web", "'stop'"),
            ("exec web", "'sbx shell SANDBOX'"),
            ("run", "<IMAGE>"),
        ] {
            assert!(refusal(line).contains(part), "{line}: {}", refusal(line));
        }
    }

    #[test]
    fn hidden_commands_are_not_suggested() {
        for line in ["complete", "_complete", "mann"] {
            let text = refusal(line);
            assert!(!text.contains("__complete") && !text.contains("'man'"), "{line}: {text}");
        }
    }

    #[test]
    fn hints_name_commands_that_exist() {
        let all = COMMANDS.iter().map(|(_, hint)| *hint).chain(OPTIONS.iter().map(|(.., hint)| *hint));
        let all =
            all.chain(MISSING.iter().map(|(.., hint)| *hint)).chain(VALUES.iter().map(|(.., hint)| *hint));
        let all = all.chain(EXTRA.iter().map(|(.., hint)| *hint));
        for hint in all {
            for rest in hint.split("'sbx ").skip(1) {
                let name = rest.split([' ', '\'']).next().unwrap();
                assert!(name.starts_with('-') || Cli::command().find_subcommand(name).is_some(), "{hint}");
            }
        }
        for (names, _) in COMMANDS {
            assert!(names.iter().all(|name| Cli::command().find_subcommand(name).is_none()), "{names:?}");
        }
    }
}
