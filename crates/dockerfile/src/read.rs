//! Reads a Dockerfile into the instructions that the builder carries out. Everything else is refused with its line.

use parse_dockerfile as parser;
use parser::Instruction as Parsed;

use crate::here_doc::{self, Prepared};
use crate::instruction::{
    Arg, CommandForm, Dockerfile, From, Instruction, InstructionKind, ParsedStage, RawSource,
};
use crate::{DockerfileError, MAX_BYTES, MAX_STAGES, run_mount, words};

/// Most characters of an instruction that the log shows.
const SHOWN: usize = 200;
/// Runs a here-document that begins with `#!` as a program of its own.
const RUN_SCRIPT: &str =
    "f=$(mktemp) && printf %s \"$1\" > \"$f\" && chmod 700 \"$f\" && \"$f\"; s=$?; rm -f \"$f\"; exit $s";

/// Parses a Dockerfile.
pub fn parse(text: &str) -> Result<Dockerfile, DockerfileError> {
    if text.len() > MAX_BYTES {
        let message = format!("the Dockerfile has {} bytes; allowed: at most {MAX_BYTES}", text.len());
        return Err(DockerfileError::new(1, message));
    }
    let escape = escape_of(text);
    let prepared = here_doc::prepare(text, escape)?;
    let parsed = parser::parse(&prepared.text).map_err(|error| {
        let message = error.to_string();
        // The parser appends its position, which is that in the prepared text.
        let message = message.split(" at line ").next().unwrap_or_default();
        DockerfileError::new(prepared.line(error.line()), message)
    })?;
    DockerfileReader { original: text, prepared: &prepared, escape }.read(&parsed.instructions)
}

/// Parses an instruction of `ONBUILD`, which is carried out at a line.
pub(crate) fn parse_trigger(text: &str, line: usize) -> Result<Vec<Instruction>, DockerfileError> {
    let parsed = parse(&format!("FROM a\n{text}\n"));
    let parsed = parsed.map_err(|error| {
        DockerfileError::new(line, format!("ONBUILD of the base, '{text}': {}", error.message))
    })?;
    let instructions = parsed.stages.into_iter().flat_map(|stage| stage.instructions);
    Ok(instructions.map(|instruction| Instruction { line, ..instruction }).collect())
}

/// The escape character that a directive at the start names.
fn escape_of(text: &str) -> char {
    let directives = text.lines().map_while(|line| line.trim().strip_prefix('#')?.split_once('='));
    let escape = directives.map(|(name, value)| (name.trim(), value.trim()));
    let is_backtick =
        escape.into_iter().any(|(name, value)| name.eq_ignore_ascii_case("escape") && value == "`");
    if is_backtick { '`' } else { '\\' }
}

struct DockerfileReader<'a> {
    original: &'a str,
    prepared: &'a Prepared,
    escape: char,
}

impl DockerfileReader<'_> {
    fn read(&self, instructions: &[Parsed<'_>]) -> Result<Dockerfile, DockerfileError> {
        let (mut global_args, mut stages) = (Vec::new(), Vec::<ParsedStage>::new());
        for parsed in instructions {
            let line = self.line_of(parsed);
            match parsed {
                Parsed::From(_) if stages.len() == MAX_STAGES => {
                    let message = format!("the Dockerfile has more than {MAX_STAGES} stages");
                    return Err(DockerfileError::new(line, message));
                }
                Parsed::From(from) => stages.push(self.stage(line, from)?),
                Parsed::Arg(arg) if stages.is_empty() => {
                    global_args.extend(self.args(line, &arg.arguments.value)?);
                }
                _ => {
                    let kind = self.kind(line, parsed)?;
                    let instruction = Instruction { line, text: self.text_of(line), kind };
                    let Some(stage) = stages.last_mut() else {
                        return Err(DockerfileError::new(line, "the first instruction is not FROM"));
                    };
                    stage.instructions.push(instruction);
                }
            }
        }
        if stages.is_empty() {
            return Err(DockerfileError::new(1, "there is no FROM"));
        }
        Ok(Dockerfile { escape: self.escape, global_args, stages })
    }

    fn stage(&self, line: usize, from: &parser::FromInstruction<'_>) -> Result<ParsedStage, DockerfileError> {
        let name = from.as_.as_ref().map(|(_, name)| name.value.to_string());
        Ok(ParsedStage { from: self.from(line, from)?, name, instructions: Vec::new() })
    }

    fn from(&self, line: usize, from: &parser::FromInstruction<'_>) -> Result<From, DockerfileError> {
        let mut platform = None;
        for flag in &from.options {
            match (&*flag.name.value, &flag.value) {
                ("platform", Some(value)) => platform = Some(value.value.to_string()),
                _ => return Err(unsupported_flag(line, "FROM", flag)),
            }
        }
        Ok(From { line, image: from.image.value.to_string(), platform })
    }

    fn kind(&self, line: usize, parsed: &Parsed<'_>) -> Result<InstructionKind, DockerfileError> {
        let at_line = |message: String| DockerfileError::new(line, message);
        let pairs = |text: &str| words::pairs(text, self.escape).map_err(at_line);
        Ok(match parsed {
            Parsed::Arg(arg) => InstructionKind::Args(self.args(line, &arg.arguments.value)?),
            Parsed::Env(env) => InstructionKind::Env(pairs(&env.arguments.value)?),
            Parsed::Label(label) => InstructionKind::Labels(pairs(&label.arguments.value)?),
            Parsed::Run(run) => self.run(line, run)?,
            Parsed::Copy(copy) => {
                self.copy(line, "COPY", (&copy.options, &copy.src, &copy.dest), copy.copy.span.start)?
            }
            Parsed::Add(add) => {
                self.copy(line, "ADD", (&add.options, &add.src, &add.dest), add.add.span.start)?
            }
            Parsed::Workdir(workdir) => InstructionKind::Workdir(workdir.arguments.value.to_string()),
            Parsed::User(user) => InstructionKind::User(user.arguments.value.to_string()),
            Parsed::Expose(expose) => InstructionKind::Expose(texts(&expose.arguments)),
            Parsed::Cmd(cmd) => InstructionKind::Cmd(self.command(&cmd.arguments)),
            Parsed::Entrypoint(entrypoint) => {
                InstructionKind::Entrypoint(self.command(&entrypoint.arguments))
            }
            Parsed::Shell(shell) => InstructionKind::Shell(texts(&shell.arguments)),
            Parsed::Onbuild(trigger) => self.trigger(line, &trigger.instruction)?,
            Parsed::Volume(_) => InstructionKind::Volume,
            Parsed::Healthcheck(_) => InstructionKind::HealthCheck,
            Parsed::Stopsignal(_) => InstructionKind::StopSignal,
            Parsed::Maintainer(_) => InstructionKind::Maintainer,
            _ => return Err(DockerfileError::new(line, "this instruction is not supported")),
        })
    }

    /// The text of an instruction of `ONBUILD`, which is parsed again when it is carried out.
    fn trigger(&self, line: usize, inner: &Parsed<'_>) -> Result<InstructionKind, DockerfileError> {
        let refused =
            |what: &str| DockerfileError::new(line, format!("ONBUILD with {what} is not supported"));
        match self.kind(line, inner)? {
            InstructionKind::OnBuild(_) => return Err(refused("another ONBUILD")),
            InstructionKind::Copy { from: Some(_), .. } => return Err(refused("COPY --from")),
            _ => {}
        }
        let lines: Vec<&str> = self.prepared.text[start_of(inner)..].lines().collect();
        let own = &lines[..here_doc::logical_length(&lines, self.escape)];
        let text = words::join_lines(&own.join("\n"), self.escape);
        if words::split(&text, self.escape).iter().any(|word| word.starts_with("<<")) {
            return Err(refused("a here-document"));
        }
        Ok(InstructionKind::OnBuild(text))
    }

    fn args(&self, line: usize, text: &str) -> Result<Vec<Arg>, DockerfileError> {
        let arg = |word: &str| {
            let (name, default) = match word.split_once('=') {
                Some((name, default)) => (name, Some(default.to_owned())),
                None => (word, None),
            };
            if name.is_empty() || name.contains(['"', '\'', '$']) {
                return Err(DockerfileError::new(
                    line,
                    format!("'{word}' is not of the form NAME or NAME=DEFAULT"),
                ));
            }
            Ok(Arg { line, name: name.to_owned(), default })
        };
        words::split(text, self.escape).into_iter().map(arg).collect()
    }

    fn run(&self, line: usize, run: &parser::RunInstruction<'_>) -> Result<InstructionKind, DockerfileError> {
        let mut has_cache_mount = false;
        for flag in &run.options {
            let value = flag.value.as_ref().map(|value| &*value.value);
            match (&*flag.name.value, value) {
                ("network", Some("default")) => {}
                ("mount", Some(mount)) if run_mount::is_empty_cache(mount) => has_cache_mount = true,
                ("mount", Some(mount)) => {
                    return Err(DockerfileError::new(line, run_mount::unsupported(mount)));
                }
                _ => return Err(unsupported_flag(line, "RUN", flag)),
            }
        }
        let command = match run.here_docs.first() {
            None => self.command(&run.arguments),
            Some(document) => {
                let script = document.value.to_string();
                if script.starts_with("#!") {
                    CommandForm::Exec(
                        ["/bin/sh", "-c", RUN_SCRIPT, "sh", &script].map(str::to_owned).to_vec(),
                    )
                } else {
                    CommandForm::Shell(script)
                }
            }
        };
        Ok(InstructionKind::Run { command, has_cache_mount })
    }

    fn command(&self, command: &parser::Command<'_>) -> CommandForm {
        match command {
            parser::Command::Exec(words) => CommandForm::Exec(texts(&words.value)),
            parser::Command::Shell(text) => CommandForm::Shell(words::join_lines(text.value, self.escape)),
            // The parser has no other kind.
            _ => CommandForm::Exec(Vec::new()),
        }
    }

    fn copy(
        &self,
        line: usize,
        keyword: &str,
        (options, sources, destination): (
            &[parser::Flag<'_>],
            &[parser::Source<'_>],
            &parser::UnescapedString<'_>,
        ),
        start: usize,
    ) -> Result<InstructionKind, DockerfileError> {
        let (mut owner, mut mode, mut from) = (None, None, None);
        for flag in options {
            let value = flag.value.as_ref().map(|value| value.value.to_string());
            match (&*flag.name.value, value) {
                ("chown", Some(value)) => owner = Some(value),
                ("chmod", Some(value)) => mode = Some(value),
                ("from", Some(value)) if keyword == "COPY" => from = Some(value),
                // Whether layers can be moved makes no difference here.
                ("link", None) => {}
                ("link", Some(value)) if value == "true" || value == "false" => {}
                _ => return Err(unsupported_flag(line, keyword, flag)),
            }
        }
        let mut names = self.document_names(start).into_iter();
        let mut read = Vec::new();
        for source in sources {
            read.push(match source {
                parser::Source::Path(path) if is_remote(&path.value) => {
                    let message =
                        format!("{keyword} of a URL is not supported; use RUN with a download program");
                    return Err(DockerfileError::new(line, message));
                }
                parser::Source::Path(path) => RawSource::Path(path.value.to_string()),
                parser::Source::HereDoc(_) if from.is_some() => {
                    return Err(DockerfileError::new(line, "COPY --from has no here-documents"));
                }
                parser::Source::HereDoc(document) => RawSource::Inline {
                    name: names.next().unwrap_or_default(),
                    content: document.value.to_string(),
                    expands: document.expand,
                },
                _ => {
                    return Err(DockerfileError::new(
                        line,
                        format!("{keyword} has a source of an unknown kind"),
                    ));
                }
            });
        }
        let destination = destination.value.to_string();
        Ok(InstructionKind::Copy {
            sources: read,
            destination,
            owner,
            mode,
            extracts: keyword == "ADD",
            from,
        })
    }

    /// The names of the here-documents of an instruction, which are the names of the files.
    fn document_names(&self, start: usize) -> Vec<String> {
        let text = &self.prepared.text[start..];
        let line = text.lines().next().unwrap_or_default();
        let named = words::split(line, self.escape).into_iter().filter_map(|word| word.strip_prefix("<<"));
        named.map(|name| name.trim_start_matches('-').trim_matches(['"', '\'']).to_owned()).collect()
    }

    fn line_of(&self, parsed: &Parsed<'_>) -> usize {
        let before = &self.prepared.text[..start_of(parsed)];
        self.prepared.line(before.matches('\n').count() + 1)
    }

    /// The instruction at a line of the original text, with its lines joined.
    fn text_of(&self, line: usize) -> String {
        let lines: Vec<&str> = self.original.lines().skip(line.saturating_sub(1)).collect();
        let own = &lines[..here_doc::logical_length(&lines, self.escape)];
        let joined = words::join_lines(&own.join("\n"), self.escape);
        let joined = joined.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text: String = joined.chars().take(SHOWN).collect();
        if text.len() < joined.len() {
            text.push('…');
        }
        text
    }
}

fn texts(words: &[parser::UnescapedString<'_>]) -> Vec<String> {
    words.iter().map(|word| word.value.to_string()).collect()
}

fn is_remote(source: &str) -> bool {
    ["http://", "https://", "git@", "git://"].iter().any(|scheme| source.starts_with(scheme))
}

fn unsupported_flag(line: usize, keyword: &str, flag: &parser::Flag<'_>) -> DockerfileError {
    let value = flag.value.as_ref().map(|value| format!("={}", value.value)).unwrap_or_default();
    DockerfileError::new(line, format!("{keyword} --{}{value} is not supported", flag.name.value))
}

fn start_of(parsed: &Parsed<'_>) -> usize {
    let span = match parsed {
        Parsed::Add(add) => &add.add.span,
        Parsed::Arg(arg) => &arg.arg.span,
        Parsed::Cmd(cmd) => &cmd.cmd.span,
        Parsed::Copy(copy) => &copy.copy.span,
        Parsed::Entrypoint(entrypoint) => &entrypoint.entrypoint.span,
        Parsed::Env(env) => &env.env.span,
        Parsed::Expose(expose) => &expose.expose.span,
        Parsed::From(from) => &from.from.span,
        Parsed::Healthcheck(healthcheck) => &healthcheck.healthcheck.span,
        Parsed::Label(label) => &label.label.span,
        Parsed::Maintainer(maintainer) => &maintainer.maintainer.span,
        Parsed::Onbuild(onbuild) => &onbuild.onbuild.span,
        Parsed::Run(run) => &run.run.span,
        Parsed::Shell(shell) => &shell.shell.span,
        Parsed::Stopsignal(stopsignal) => &stopsignal.stopsignal.span,
        Parsed::User(user) => &user.user.span,
        Parsed::Volume(volume) => &volume.volume.span,
        Parsed::Workdir(workdir) => &workdir.workdir.span,
        _ => return 0,
    };
    span.start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (usize, String) {
        let error = parse(text).unwrap_err();
        (error.line, error.message)
    }

    #[test]
    fn what_is_not_supported_is_refused_at_its_line_with_what_to_do() {
        for (text, line, part) in [
            (
                "FROM a\nRUN --mount=type=cache,target=/c --mount=type=secret,id=x make",
                2,
                "type=secret is not supported",
            ),
            ("FROM a\n\nRUN --mount=type=ssh make", 3, "a build has no SSH agent"),
            ("FROM a\nRUN --network=none make", 2, "RUN --network=none is not supported"),
            ("FROM a\nCOPY --parents a /b", 2, "COPY --parents is not supported"),
            ("FROM a\nCOPY --link=maybe a /b", 2, "COPY --link=maybe is not supported"),
            ("FROM a\nADD --from=x a /b", 2, "ADD --from=x is not supported"),
            ("FROM a\nADD https://a.example/b /c", 2, "ADD of a URL is not supported; use RUN"),
            ("FROM a\nONBUILD COPY --from=x a /b", 2, "ONBUILD with COPY --from is not supported"),
            ("FROM a\nARG $X", 2, "'$X' is not of the form NAME or NAME=DEFAULT"),
        ] {
            let (at, message) = refused(text);
            assert!(at == line && message.contains(part), "{text}: line {at}: {message}");
        }
    }

    #[test]
    fn flags_that_make_no_difference_are_accepted() {
        let text = "FROM --platform=linux/amd64 a\nRUN --network=default x\nCOPY --link --chown=1 --chmod=755 a /b\nCOPY --link=true a /b\n";
        let file = parse(text).unwrap();
        assert_eq!(file.stages[0].from.platform.as_deref(), Some("linux/amd64"));
        let InstructionKind::Copy { owner, mode, extracts, from, .. } = &file.stages[0].instructions[1].kind
        else {
            panic!("a copy");
        };
        assert_eq!(
            (owner.as_deref(), mode.as_deref(), *extracts, from),
            (Some("1"), Some("755"), false, &None)
        );
    }

    #[test]
    fn the_log_shows_an_instruction_on_one_short_line() {
        let shown = |text: &str| parse(text).unwrap().stages[0].instructions[0].text.clone();
        assert_eq!(shown("FROM a\nRUN one \\\n    two\n"), "RUN one two");
        let long = shown(&format!("FROM a\nRUN {}\n", "x".repeat(300)));
        assert_eq!((long.chars().count(), long.chars().next_back()), (SHOWN + 1, Some('…')));
        let fits = shown(&format!("FROM a\nRUN {}\n", "x".repeat(SHOWN - 4)));
        assert_eq!((fits.len(), fits.ends_with('x')), (SHOWN, true));
    }

    #[test]
    fn only_directives_at_the_start_change_the_escape() {
        for (text, escape) in [
            ("# escape=`\nFROM a\n", '`'),
            ("# syntax=docker/dockerfile:1\n#ESCAPE = `\nFROM a\n", '`'),
            ("# a comment\n# escape=`\nFROM a\n", '\\'),
            ("FROM a\n# escape=`\n", '\\'),
        ] {
            assert_eq!(parse(text).unwrap().escape, escape, "{text}");
        }
    }

    #[test]
    fn a_long_file_and_many_stages_are_refused() {
        let fits = format!("FROM a\n#{}", "x".repeat(MAX_BYTES - 8));
        assert!(fits.len() == MAX_BYTES && parse(&fits).is_ok());
        let (line, message) = refused(&format!("{fits}x"));
        assert_eq!((line, message.as_str()), (1, "the Dockerfile has 262145 bytes; allowed: at most 262144"));
        assert_eq!(parse(&"FROM a\n".repeat(MAX_STAGES)).unwrap().stages.len(), MAX_STAGES);
        let (line, message) = refused(&"FROM a\n".repeat(MAX_STAGES + 1));
        assert_eq!((line, message.as_str()), (17, "the Dockerfile has more than 16 stages"));
    }
}
