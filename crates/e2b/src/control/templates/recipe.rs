//! Translates the steps of their builds into a Dockerfile. Pure.
//!
//! Each step becomes a few lines behind a comment with its number, so that the line of a failure names its step. The files of a step
//! are in a directory of the context that is named by their hash.

use serde::Deserialize;

use crate::error::E2bError;
use crate::run_defaults::RunDefaults;

/// The directory that builds above an image begin with.
const HOME: &str = "/home/user"; // tidy: allow(machine-path): the home directory inside of sandboxes
const STEP: &str = "# step ";
/// What their builds run commands in.
const SHELL: [&str; 3] = ["/bin/bash", "-l", "-c"];
const NEW_DIRECTORY: &str = r#"[ -d "$0" ] || { mkdir -p -- "$0" && chown -- "$1" "$0"; }"#;
/// Variables of the shell in which their builds expand values.
const ROOT_VARIABLES: [(&str, &str); 2] = [("HOME", "/root"), ("USER", "root")];
/// Most bytes of the argument of a process.
const MAX_ARG: usize = 128 * 1024;

/// A step of a build.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub args: Vec<String>,
    pub files_hash: Option<String>,
    #[serde(default)]
    pub force: bool,
}

/// The Dockerfile of a build upon an image or a template, whose last user and directory the steps begin with.
pub fn dockerfile(base: &str, defaults: &RunDefaults, steps: &[Step]) -> Result<String, E2bError> {
    let (user, workdir) = (defaults.user(), defaults.workdir.as_deref().unwrap_or(HOME));
    let lines = vec![
        format!("FROM {}", single_line(base)?),
        format!("USER {}", escaped(user)),
        format!("WORKDIR {}", escaped(workdir)),
    ];
    let mut recipe = Recipe { lines, user: user.to_owned() };
    for (number, step) in steps.iter().enumerate() {
        recipe.lines.push(format!("{STEP}{}", number + 1));
        recipe.add(step).map_err(|error| {
            E2bError::invalid(format!(
                "step {} ({}): {}",
                number + 1,
                rules::quoted(&step.kind),
                error.message
            ))
        })?;
    }
    Ok(recipe.lines.join("\n") + "\n")
}

/// The number of the step at a line of such a Dockerfile.
pub fn step_at(dockerfile: &str, line: usize) -> Option<usize> {
    let before: Vec<&str> = dockerfile.lines().take(line).collect();
    before.iter().rev().find_map(|line| line.strip_prefix(STEP)?.parse().ok())
}

/// The command of the `RUN` at a line of such a Dockerfile.
pub fn command_at(dockerfile: &str, line: usize) -> Option<String> {
    let words = dockerfile.lines().nth(line.checked_sub(1)?)?.strip_prefix("RUN ")?;
    let mut words: Vec<String> = serde_json::from_str(words).ok()?;
    words.pop().filter(|_| words == SHELL)
}

/// A command of `/bin/sh` that runs one in the shell of the steps.
pub fn in_shell(command: &str) -> String {
    format!("exec {} '{}'", SHELL.join(" "), command.replace('\'', r"'\''"))
}

struct Recipe {
    lines: Vec<String>,
    user: String,
}

impl Recipe {
    fn add(&mut self, step: &Step) -> Result<(), E2bError> {
        let arg = |at: usize| step.args.get(at).map(String::as_str).filter(|arg| !arg.is_empty());
        let required =
            |at: usize| arg(at).ok_or_else(|| E2bError::invalid(format!("argument {} is missing", at + 1)));
        match step.kind.as_str() {
            "RUN" => {
                let command = required(0)?;
                self.as_user(arg(1), |lines| {
                    let [program, login, option] = SHELL;
                    lines.push(format!("RUN {}", json(&[program, login, option, command])?));
                    Ok(())
                })?;
            }
            "COPY" => {
                let (source, destination) = (required(0)?, required(1)?);
                let hash =
                    step.files_hash.as_deref().ok_or_else(|| E2bError::invalid("filesHash is missing"))?;
                let source = format!("{}/{}", checked_hash(hash)?, source.trim_start_matches("./"));
                let owner = single_line(arg(2).unwrap_or(&self.user))?;
                let mode = arg(3)
                    .map(|mode| Ok::<_, E2bError>(format!(" --chmod={}", single_line(mode)?)))
                    .transpose()?;
                let words = json(&[&escaped(&source), &escaped(destination)])?;
                self.lines.push(format!("COPY --chown={owner}{} {words}", mode.unwrap_or_default()));
            }
            "ENV" => {
                // On one line: the values refer to the variables before the step.
                let pair = |pair: &[String]| match pair {
                    [name, value] => {
                        Ok(format!("{}=\"{}\"", single_line(name)?, expanding(single_line(value)?)))
                    }
                    _ => Err(E2bError::invalid("a variable has no value")),
                };
                let pairs = step.args.chunks(2).map(pair).collect::<Result<Vec<_>, _>>()?;
                if !pairs.is_empty() {
                    self.lines.push(format!("ENV {}", pairs.join(" ")));
                }
            }
            "WORKDIR" => self.change_directory(required(0)?)?,
            "USER" => {
                self.user = single_line(required(0)?)?.to_owned();
                self.lines.push(format!("USER {}", escaped(&self.user)));
            }
            _ => return Err(E2bError::invalid("the type is unknown; known: RUN, COPY, ENV, WORKDIR, USER")),
        }
        Ok(())
    }

    /// With them, a new directory belongs to the user.
    fn change_directory(&mut self, path: &str) -> Result<(), E2bError> {
        let path = single_line(path)?;
        let owner = self.user.clone();
        self.as_user(Some("root"), |lines| {
            lines.push(format!("RUN {}", json(&["/bin/sh", "-c", NEW_DIRECTORY, path, &owner])?));
            Ok(())
        })?;
        self.lines.push(format!("WORKDIR {}", escaped(path)));
        Ok(())
    }

    /// Adds lines that another user carries out.
    fn as_user(
        &mut self,
        user: Option<&str>,
        add: impl FnOnce(&mut Vec<String>) -> Result<(), E2bError>,
    ) -> Result<(), E2bError> {
        let Some(user) = user.filter(|user| *user != self.user) else { return add(&mut self.lines) };
        self.lines.push(format!("USER {}", escaped(single_line(user)?)));
        add(&mut self.lines)?;
        self.lines.push(format!("USER {}", escaped(&self.user)));
        Ok(())
    }
}

/// A word that the parser takes as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\\' | '"' | '\'' | '$') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// The content of a word in double quotes that the parser expands as their builds do: variables have their values, and everything else
/// is text, also what a shell would run as a command. `HOME` and `USER` are those of root there, unless a step sets them.
fn expanding(value: &str) -> String {
    let mut word = String::with_capacity(value.len());
    let (mut rest, mut braces) = (value, 0_usize);
    while let Some(character) = rest.chars().next() {
        let after = &rest[character.len_utf8()..];
        if let Some((default, length)) = ROOT_VARIABLES.iter().find_map(|(name, value)| {
            let length = variable_length(rest, name)?;
            Some((format!("${{{name}-{value}}}"), length))
        }) {
            word.push_str(&default);
            rest = &rest[length..];
            continue;
        }
        match character {
            '$' if after.starts_with('(') => word.push_str("\\$"),
            '$' if after.starts_with('{') => {
                braces += 1;
                word.push_str("${");
                rest = &after[1..];
                continue;
            }
            '}' if braces > 0 => {
                braces -= 1;
                word.push('}');
            }
            '\\' | '"' => word.extend(['\\', character]),
            // Only there the parser would take it for a quote.
            '\'' if braces > 0 => word.extend(['\\', character]),
            _ => word.push(character),
        }
        rest = after;
    }
    word
}

/// The length of `$NAME` or `${NAME}` at the start of a text.
fn variable_length(text: &str, name: &str) -> Option<usize> {
    let after = text.strip_prefix('$')?;
    if let Some(inner) = after.strip_prefix('{') {
        return inner.strip_prefix(name)?.starts_with('}').then_some(name.len() + 3);
    }
    let behind = after.strip_prefix(name)?;
    let goes_on = behind.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_');
    (!goes_on).then_some(name.len() + 1)
}

fn json(words: &[&str]) -> Result<String, E2bError> {
    if words.iter().any(|word| word.len() >= MAX_ARG) {
        return Err(E2bError::invalid(format!("an argument has {MAX_ARG} bytes or more")));
    }
    serde_json::to_string(words).map_err(|error| E2bError::invalid(error.to_string()))
}

fn single_line(text: &str) -> Result<&str, E2bError> {
    if text.contains(['\n', '\r', '\0']) {
        return Err(E2bError::invalid("an argument has a line feed"));
    }
    Ok(text)
}

/// The hash becomes the name of a directory.
pub fn checked_hash(hash: &str) -> Result<&str, E2bError> {
    let fits = (8..=128).contains(&hash.len()) && hash.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits { Ok(hash) } else { Err(E2bError::invalid("the hash of files is 8 to 128 letters and digits")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(kind: &str, args: &[&str]) -> Step {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        Step { kind: kind.to_owned(), args, files_hash: Some("0123abcd".to_owned()), force: false }
    }

    #[test]
    fn each_step_is_a_few_lines() {
        let steps = [
            step("RUN", &["echo \"$HOME\" && \\\n ls"]),
            step("RUN", &["id", "root"]),
            step("COPY", &["src/*", "dest", "", ""]),
            step("COPY", &["a'b", "/x $y", "root", "0755"]),
            step("ENV", &["A", "b \"c\" $PATH", "E", ""]),
            step("WORKDIR", &["/app"]),
            step("USER", &["root"]),
        ];
        let text = dockerfile("ubuntu:22.04", &RunDefaults::default(), &steps).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "FROM ubuntu:22.04",
                "USER user",
                "WORKDIR /home/user", // tidy: allow(machine-path): the home directory inside of sandboxes
                "# step 1",
                r#"RUN ["/bin/bash","-l","-c","echo \"$HOME\" && \\\n ls"]"#,
                "# step 2",
                "USER root",
                r#"RUN ["/bin/bash","-l","-c","id"]"#,
                "USER user",
                "# step 3",
                r#"COPY --chown=user ["0123abcd/src/*","dest"]"#,
                "# step 4",
                r#"COPY --chown=root --chmod=0755 ["0123abcd/a\\'b","/x \\$y"]"#,
                "# step 5",
                r#"ENV A="b \"c\" $PATH" E="""#,
                "# step 6",
                "USER root",
                r#"RUN ["/bin/sh","-c","[ -d \"$0\" ] || { mkdir -p -- \"$0\" && chown -- \"$1\" \"$0\"; }","/app","user"]"#,
                "USER user",
                "WORKDIR /app",
                "# step 7",
                "USER root",
            ]
        );
        assert_eq!([1, 5, 8, 12].map(|line| step_at(&text, line)), [None, Some(1), Some(2), Some(4)]);
        let commands = [0, 5, 7, 8, 99].map(|line| command_at(&text, line));
        let first = "echo \"$HOME\" && \\\n ls".to_owned();
        assert_eq!(commands, [None, Some(first), None, Some("id".to_owned()), None]);
        let file = ::dockerfile::parse(&text).unwrap();
        let base = ::dockerfile::ImageSettings {
            env: vec![("PATH".to_owned(), "/bin".to_owned())],
            ..Default::default()
        };
        let plan = file.plan(&Default::default(), &base).unwrap();
        assert_eq!(plan.steps.len(), 6);
        assert_eq!(
            plan.settings.env[1..],
            [("A".to_owned(), "b \"c\" /bin".to_owned()), ("E".to_owned(), String::new())]
        );
        assert_eq!((plan.settings.user, plan.settings.workdir.as_deref()), (None, Some("/app")));
    }

    #[test]
    fn start_commands_run_in_the_shell_of_the_steps() {
        assert_eq!(in_shell("echo 'a' && b"), r"exec /bin/bash -l -c 'echo '\''a'\'' && b'");
    }

    /// The variables after steps that each set one or more, above an image with `PATH=/bin`.
    fn variables(steps: &[&[&str]]) -> std::collections::BTreeMap<String, String> {
        let steps: Vec<Step> = steps.iter().map(|args| step("ENV", args)).collect();
        let text = dockerfile("a", &RunDefaults::default(), &steps).unwrap();
        let base = ::dockerfile::ImageSettings {
            env: vec![("PATH".to_owned(), "/bin".to_owned())],
            ..Default::default()
        };
        let plan = ::dockerfile::parse(&text).unwrap().plan(&Default::default(), &base).unwrap();
        plan.settings.env.into_iter().collect()
    }

    #[test]
    fn values_of_variables_are_expanded_and_run_nothing() {
        for (value, expected) in [
            ("/opt/x/bin:$PATH", "/opt/x/bin:/bin"),
            ("${PATH}:${NONE:-d}", "/bin:d"),
            ("$NONE.", "."),
            ("$(id) `id` $", "$(id) `id` $"),
            (r"a\nb \$PATH", r"a\nb \/bin"),
            (r#"say "$PATH" 'it'"#, r#"say "/bin" 'it'"#),
            ("${NONE:-it's}", "it's"),
            ("}{", "}{"),
            ("$HOME ${USER} $HOMES", "/root root "),
        ] {
            assert_eq!(variables(&[&["X", value]])["X"], expected, "{value}");
        }
        // Of one step, all see the variables before it.
        let set = variables(&[&["A", "1"], &["A", "2", "B", "$A"], &["HOME", "/h"], &["C", "$HOME"]]);
        assert_eq!((&*set["A"], &*set["B"], &*set["C"]), ("2", "1", "/h"));
    }

    #[test]
    fn hostile_steps_are_refused() {
        for bad in [
            step("RUN", &[]),
            step("RUN", &["x", "root\nRUN y"]),
            step("COPY", &["a"]),
            step("ENV", &["A"]),
            step("ENV", &["A\nRUN x", "b"]),
            step("WORKDIR", &["/a\nRUN x"]),
            step("VOLUME", &["/a"]),
            Step { files_hash: Some("../../etc".to_owned()), ..step("COPY", &["a", "b"]) },
            Step { files_hash: None, ..step("COPY", &["a", "b"]) },
        ] {
            let refused = dockerfile("a", &RunDefaults::default(), std::slice::from_ref(&bad));
            assert!(refused.is_err(), "{bad:?}");
        }
        assert!(dockerfile("a\nRUN x", &RunDefaults::default(), &[]).is_err());
    }

    #[test]
    fn steps_above_a_template_begin_with_its_user_and_directory() {
        let given = RunDefaults { user: Some("root".to_owned()), workdir: Some("/srv/a b".to_owned()) };
        let steps = [step("COPY", &["a", "b"]), step("RUN", &["id", "root"])];
        let text = dockerfile("tpl_web00000000", &given, &steps).unwrap();
        assert_eq!(
            text.lines().take(3).collect::<Vec<_>>(),
            ["FROM tpl_web00000000", "USER root", "WORKDIR /srv/a b"]
        );
        assert!(text.contains("COPY --chown=root ") && text.matches("USER").count() == 1, "{text}");
        ::dockerfile::parse(&text).unwrap();
    }
}
