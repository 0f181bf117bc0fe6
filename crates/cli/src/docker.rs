//! Hints for users of Docker. If the command line is refused, `main` asks here whether a command or an option of `docker` was meant, and
//! what sbx has instead. A hint replaces the suggestion of clap, which compares the spelling: for `stop` it suggests `top`.

mod table;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use table::{COMMANDS, EXTRA, FAILED_BUILDS, HOST_NAME, MISSING, NETWORKS, NEW_SNAPSHOT, OPTIONS, VALUES};

use crate::cli::Cli;

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
                    ("snapshot", "take" | "save" | "new") => Some(NEW_SNAPSHOT),
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
            ("snapshot take web", "'sbx snapshot create SANDBOX'"),
            ("open --print web 80", "prints the URL"),
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
            ("network deny web --all", "'sbx network offline SANDBOX'"),
            ("expose web 8080 -q", "only the URLs"),
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
