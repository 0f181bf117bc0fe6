//! Shell completion: the scripts, and the candidates for the last word. Candidates come from the definition of the
//! command line; sandbox ids come from the service.

use clap::{Arg, Command};

use crate::cli::Shell;

/// Value name of arguments that are sandbox ids.
pub const SANDBOX: &str = "SANDBOX";

/// Value names of arguments that are local paths or SANDBOX:PATH.
const EITHER: [&str; 2] = ["FROM", "TO"];

const BASH: &str = r#"_sbx() {
  local IFS=$'\n'
  COMPREPLY=($(sbx __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
  [[ ${COMPREPLY[0]} == *: ]] && compopt -o nospace 2>/dev/null
}
complete -o default -F _sbx sbx
"#;

const ZSH: &str = r#"#compdef sbx
_sbx() {
  local -a found
  local line
  for line in "${(@f)$(sbx __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#found )); then _describe sbx found; else _files; fi
}
if [[ $funcstack[1] == _sbx ]]; then _sbx "$@"; else compdef _sbx sbx; fi
"#;

const FISH: &str = r#"complete -c sbx -a '(sbx __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
"#;

/// The script that a shell loads; it calls the hidden command `__complete`.
pub const fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    }
}

/// Candidates for the last word.
#[derive(Debug, PartialEq, Eq)]
pub enum Candidates {
    /// Words with their descriptions.
    Words(Vec<(String, String)>),
    /// Sandbox ids for a command, except those already given.
    Sandboxes {
        command: String,
        given: Vec<String>,
    },
    Nothing,
}

/// The candidates for the last of the words after `sbx`.
pub fn candidates(root: &Command, words: &[String]) -> Candidates {
    let Some((typed, before)) = words.split_last() else { return Candidates::Nothing };
    let mut command = root;
    let mut positionals: Vec<String> = Vec::new();
    let mut wants_value: Option<&Arg> = None;
    for word in before {
        if wants_value.take().is_some() {
            continue;
        }
        if word == "--" || is_in_command_line(command, positionals.len()) {
            return Candidates::Nothing;
        }
        if word.starts_with('-') {
            wants_value = option(root, command, word).filter(|arg| takes_value(arg) && !word.contains('='));
        } else if let Some(found) = command.find_subcommand(word).filter(|_| positionals.is_empty()) {
            command = found;
        } else {
            positionals.push(word.clone());
        }
    }
    if is_in_command_line(command, positionals.len()) {
        return Candidates::Nothing;
    }
    if let Some(arg) = wants_value {
        return values(arg, command, positionals, typed);
    }
    if typed.starts_with('-') {
        return Candidates::Words(flags(root, command, typed));
    }
    if command.has_subcommands() {
        let all = command.get_subcommands().filter(|sub| !sub.is_hide_set());
        let found = all.map(|sub| (sub.get_name().to_owned(), about(sub.get_about())));
        return Candidates::Words(found.filter(|(name, _)| name.starts_with(typed.as_str())).collect());
    }
    let args: Vec<&Arg> = command.get_positionals().filter(|arg| !arg.is_last_set()).collect();
    let many = |arg: &&&Arg| arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    match args.get(positionals.len()).or_else(|| args.last().filter(many)) {
        Some(arg) => values(arg, command, positionals, typed),
        None => Candidates::Nothing,
    }
}

/// Whether the next word belongs to a command in the sandbox.
fn is_in_command_line(command: &Command, positionals: usize) -> bool {
    let begin = command.get_positionals().position(Arg::is_trailing_var_arg_set);
    begin.is_some_and(|begin| positionals > begin)
}

fn about(text: Option<&clap::builder::StyledStr>) -> String {
    text.map(ToString::to_string).unwrap_or_default()
}

fn takes_value(arg: &Arg) -> bool {
    arg.get_action().takes_values()
}

fn option<'a>(root: &'a Command, command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split('=').next().unwrap_or(word);
    let fits = |arg: &&Arg| {
        arg.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long))
            || arg.get_short().is_some_and(|short| name.strip_prefix('-') == Some(&short.to_string()))
    };
    command.get_arguments().find(fits).or_else(|| root.get_arguments().find(fits))
}

fn flags(root: &Command, command: &Command, typed: &str) -> Vec<(String, String)> {
    let global = root.get_arguments().filter(|arg| arg.is_global_set());
    let mut found: Vec<(String, String)> = command
        .get_arguments()
        .chain(global)
        .filter(|arg| !arg.is_hide_set())
        .filter_map(|arg| Some((format!("--{}", arg.get_long()?), about(arg.get_help()))))
        .filter(|(flag, _)| flag.starts_with(typed))
        .collect();
    found.sort();
    found.dedup();
    found
}

fn values(arg: &Arg, command: &Command, given: Vec<String>, typed: &str) -> Candidates {
    if arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == SANDBOX)) {
        return Candidates::Sandboxes { command: command.get_name().to_owned(), given };
    }
    // The argument may also be a local file, so ids are offered only for a word that starts like one.
    let is_either =
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| EITHER.contains(&name.as_str())));
    if is_either && typed.starts_with("sb_") && !typed.contains(':') {
        return Candidates::Sandboxes { command: command.get_name().to_owned(), given: Vec::new() };
    }
    let possible = arg.get_possible_values();
    let words = possible.iter().map(|value| (value.get_name().to_owned(), about(value.get_help())));
    let words: Vec<_> = words.filter(|(name, _)| name.starts_with(typed)).collect();
    if words.is_empty() { Candidates::Nothing } else { Candidates::Words(words) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn at(line: &str) -> Candidates {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut root = Cli::command();
        root.build();
        candidates(&root, &words)
    }

    fn words(line: &str) -> Vec<String> {
        let Candidates::Words(words) = at(line) else { panic!("{line}") };
        words.into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn commands_flags_and_values_are_offered() {
        assert_eq!(words("r"), ["run", "resume", "rollback", "rm"]);
        assert_eq!(words("snapshot "), ["create", "ls", "rm", "help"]);
        assert_eq!(words("key "), ["create", "list", "revoke", "help"]);
        assert!(!words("").iter().any(|word| word.starts_with("__") || word == "man"));
        assert_eq!(words("ls --s"), ["--state"]);
        assert_eq!(words("ls --state "), ["running", "paused", "terminated"]);
        assert_eq!(words("completion z"), ["zsh"]);
        assert!(words("--json exec --").contains(&"--json".to_owned()));
    }

    #[test]
    fn sandbox_arguments_complete_to_ids() {
        let sandboxes = |command: &str, given: &[&str]| Candidates::Sandboxes {
            command: command.to_owned(),
            given: given.iter().map(|id| (*id).to_owned()).collect(),
        };
        assert_eq!(at("exec "), sandboxes("exec", &[]));
        assert_eq!(at("rollback sb_1 "), Candidates::Nothing);
        assert_eq!(at("--profile work exec -e A=1 sb_"), sandboxes("exec", &[]));
        assert_eq!(at("rm sb_1 sb_"), sandboxes("rm", &["sb_1"]));
        assert_eq!(at("exec sb_1 "), Candidates::Nothing);
        assert_eq!(at("exec sb_1 -- l"), Candidates::Nothing);
        assert_eq!(at("exec sb_1 ls -"), Candidates::Nothing);
        assert_eq!(at("exec sb_1 ls -e sb_"), Candidates::Nothing);
        assert_eq!(at("network show sb_"), sandboxes("show", &[]));
        assert_eq!(at("run --cpu "), Candidates::Nothing);
        assert_eq!(at("cp sb_"), sandboxes("cp", &[]));
        assert_eq!(at("cp a.txt sb_1"), sandboxes("cp", &[]));
        assert_eq!((at("cp a"), at("cp sb_1:/a")), (Candidates::Nothing, Candidates::Nothing));
    }
}
