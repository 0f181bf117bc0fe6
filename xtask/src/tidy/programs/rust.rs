//! Finds the programs that Rust code starts. Called by `programs`. Starts whose program cannot be determined are returned as unnamed.

use std::collections::{BTreeMap, BTreeSet};

use super::super::lex::{Token, TokenKind};
use super::super::source::{Rust, closing, opens};
use super::{ProgramStart, shell};

/// Programs that start another one: their first argument that is neither an option nor a number.
const CARRIERS: [&str; 5] = ["unshare", "nsenter", "timeout", "setpriv", "setsid"];
const SHELLS: [&str; 2] = ["sh", "bash"];

/// Options of carriers whose value is a separate argument.
const OPTIONS: [&str; 2] = ["--propagation", "--target"];

/// How a function takes the program that it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgramForm {
    /// As an argument, counted without `self`.
    Program(usize),
    /// As the first element of an argument.
    CommandLine(usize),
}

/// The functions and constants of all crates, by crate folder and name.
#[derive(Debug)]
pub struct Starters<'a> {
    /// The flag tells methods from functions.
    functions: BTreeMap<(&'a str, &'a str, bool), ProgramForm>,
    constants: BTreeMap<(&'a str, &'a str), String>,
}

impl<'a> Starters<'a> {
    pub fn new(files: &[Rust<'a>]) -> Self {
        let mut starters = Self { functions: BTreeMap::new(), constants: BTreeMap::new() };
        for file in files {
            let folder = file.crate_folder();
            for at in 0..file.code.len() {
                if let Some((name, method, form)) = starter(&file.code, at) {
                    starters.functions.insert((folder, name, method), form);
                }
                if let Some((name, value)) = constant(&file.code, at) {
                    starters.constants.insert((folder, name), value);
                }
            }
        }
        starters
    }

    fn value(&self, folder: &str, token: &Token<'_>) -> Option<String> {
        text(token).or_else(|| self.constants.get(&(folder, token.text)).cloned())
    }
}

/// `fn name(…, program: &str, …)` with a `Command` in its body: its name, whether it is a method, and its form.
fn starter<'a>(code: &[Token<'a>], at: usize) -> Option<(&'a str, bool, ProgramForm)> {
    let name = code.get(at + 1).filter(|name| code[at].is("fn") && name.is_ident())?;
    let open = (at + 2..code.len()).find(|&i| code[i].is("(") || code[i].is("{") || code[i].is(";"))?;
    let parameters = arguments(code, open);
    let is_self = |parameter: &&[Token<'_>]| parameter.iter().any(|t| t.is("self"));
    let method = parameters.first().is_some_and(is_self);
    let others = parameters.into_iter().filter(|parameter| !is_self(parameter));
    let form = others.enumerate().find_map(|(index, parameter)| {
        let is_text = parameter.last().is_some_and(|t| t.is("str"));
        match parameter.first()?.text {
            "program" if is_text => Some(ProgramForm::Program(index)),
            "command_line" => Some(ProgramForm::CommandLine(index)),
            _ => None,
        }
    })?;
    let body = (open..code.len()).find(|&i| code[i].is("{") || code[i].is(";"))?;
    let starts = code[body..=closing(code, body)].iter().any(|t| t.is("Command"));
    // A constructor is called by the name of its type, which every `new` would match.
    (starts && name.text != "new").then_some((name.text, method, form))
}

/// `const NAME: &str = "…"`.
fn constant<'a>(code: &[Token<'a>], at: usize) -> Option<(&'a str, String)> {
    let declares = code[at].is("const") || code[at].is("static");
    let name = code.get(at + 1).filter(|t| declares && t.is_ident())?;
    let value = (at + 2..code.len().min(at + 9)).find(|&i| code[i].is("=")).and_then(|i| code.get(i + 1))?;
    text(value).map(|value| (name.text, value))
}

/// The arguments between the bracket at `open` and the one that closes it.
fn arguments<'s, 'a>(code: &'s [Token<'a>], open: usize) -> Vec<&'s [Token<'a>]> {
    let close = closing(code, open);
    let (mut found, mut start, mut at) = (Vec::new(), open + 1, open + 1);
    while at < close {
        if opens(&code[at]) {
            at = closing(code, at);
        } else if code[at].is(",") {
            found.push(&code[start..at]);
            start = at + 1;
        }
        at += 1;
    }
    if start < close {
        found.push(&code[start..close]);
    }
    found
}

/// The programs that a file starts, and the lines where it starts one that it does not name.
pub fn starts(file: &Rust<'_>, starters: &Starters<'_>) -> (BTreeSet<ProgramStart>, BTreeSet<usize>) {
    let mut found = BTreeSet::new();
    let mut unnamed = BTreeSet::new();
    for at in 0..file.code.len() {
        let Some(call) = call(file, at, starters) else { continue };
        let line = file.code[at].line;
        let named = comment(file, line);
        if !named.is_empty() {
            found.extend(named.into_iter().map(|program| ProgramStart { line, program }));
            continue;
        }
        match call {
            ProgramCall::Named(program) => {
                let (more, known) = carried(file, at, &program, starters);
                found.extend(more);
                if is_program(&program) {
                    found.insert(ProgramStart { line, program });
                }
                if !known {
                    unnamed.insert(line);
                }
            }
            ProgramCall::Passed => {}
            ProgramCall::Unnamed => {
                unnamed.insert(line);
            }
        }
    }
    (found, unnamed)
}

enum ProgramCall {
    Named(String),
    /// The program is a parameter whose callers are checked, or this very program.
    Passed,
    Unnamed,
}

fn call(file: &Rust<'_>, at: usize, starters: &Starters<'_>) -> Option<ProgramCall> {
    let code = &file.code;
    let folder = file.crate_folder();
    let is = |offset: usize, text: &str| code.get(at + offset).is_some_and(|t| t.is(text));
    let constructor = |name: &str| is(0, name) && is(1, ":") && is(2, ":") && is(3, "new") && is(4, "(");
    // Another type may be called `Command`.
    if constructor("Command") && code.iter().any(|t| t.is("process")) {
        let first = *arguments(code, at + 4).first()?;
        let own = first.iter().any(|t| ["current_exe", "env"].contains(&t.text));
        let passed = first.iter().any(|t| t.is("program")) && in_starter(code, at);
        return Some(match first.iter().find_map(|t| starters.value(folder, t)) {
            Some(program) if !own => ProgramCall::Named(program),
            _ if own || passed => ProgramCall::Passed,
            _ => ProgramCall::Unnamed,
        });
    }
    // The server processes of the tests.
    let form = match code[at].text {
        "ServerProcess" if constructor("ServerProcess") => ProgramForm::CommandLine(0),
        name if is(1, "(") && code[at].is_ident() && !(at > 0 && code[at - 1].is("fn")) => {
            *starters.functions.get(&(folder, name, at > 0 && code[at - 1].is(".")))?
        }
        _ => return None,
    };
    let open = (at..code.len()).find(|&i| code[i].is("("))?;
    let arguments = arguments(code, open);
    let program = match form {
        ProgramForm::Program(index) => arguments.get(index)?.iter().find_map(|t| starters.value(folder, t)),
        ProgramForm::CommandLine(index) => {
            arguments.get(index)?.iter().find(|t| t.kind == TokenKind::Literal).and_then(text)
        }
    };
    program.map(ProgramCall::Named)
}

/// Whether the innermost function around `at` takes a program from its callers.
fn in_starter(code: &[Token<'_>], at: usize) -> bool {
    let function = (0..at).rev().find(|&i| code[i].is("fn") && code.get(i + 1).is_some_and(Token::is_ident));
    function.is_some_and(|function| starter(code, function).is_some())
}

/// The programs that a carrier starts, and whether all of them could be determined.
fn carried(file: &Rust<'_>, at: usize, program: &str, starters: &Starters<'_>) -> (Vec<ProgramStart>, bool) {
    let code = &file.code;
    let end = (at..code.len()).find(|&i| code[i].is(";") || code[i].is("fn")).unwrap_or(code.len());
    let words = &code[at..end];
    let mut found = Vec::new();
    if CARRIERS.contains(&program) {
        let literals: Vec<_> = words.iter().filter_map(|t| text(t).map(|word| (t.line, word))).collect();
        let is_value = |at: usize| at > 0 && OPTIONS.contains(&literals[at - 1].1.as_str());
        let next = (0..literals.len())
            .find(|&at| literals[at].1 != program && !is_value(at) && is_program(&literals[at].1));
        found.extend(next.map(|at| ProgramStart { line: literals[at].0, program: literals[at].1.clone() }));
    }
    let runs_shell = |start: &ProgramStart| SHELLS.contains(&start.program.as_str());
    if !SHELLS.contains(&program) && !found.iter().any(runs_shell) {
        return (found, true);
    }
    let is_flag = |t: &Token<'_>| text(t).is_some_and(|word| word.starts_with('-') && word.ends_with('c'));
    let Some(flag) = words.iter().position(is_flag) else { return (found, true) };
    let script = words
        .get(flag + 2..)
        .and_then(|rest| rest.iter().find(|t| t.kind == TokenKind::Literal || t.is_ident()));
    let value = |t: &Token<'_>| starters.value(file.crate_folder(), t).or_else(|| local(code, at, t.text));
    let Some((script, text)) = script.and_then(|t| Some((t, value(t)?))) else {
        return (found, false);
    };
    for mut start in shell::starts(&text, &BTreeSet::new()) {
        start.line = script.line;
        found.push(start);
    }
    (found, true)
}

/// The text that `let NAME = "…"` binds before `at` in the same function.
fn local(code: &[Token<'_>], at: usize, name: &str) -> Option<String> {
    let function =
        (0..at).rev().find(|&i| code[i].is("fn") && code.get(i + 1).is_some_and(Token::is_ident))?;
    let bound =
        (function..at).rev().find(|&i| code[i].is("let") && code[i + 1].is(name) && code[i + 2].is("="))?;
    text(&code[bound + 3])
}

/// The programs of a comment `starts: NAME, NAME` on the line or in the comment just above.
fn comment(file: &Rust<'_>, line: usize) -> Vec<String> {
    let above = file.comments.iter().filter(|c| c.line == line || c.end_line + 1 == line);
    let names = above.filter_map(|c| c.text.split_once("starts: ")).flat_map(|(_, names)| names.split(','));
    names.map(|name| name.trim().trim_end_matches('.').to_owned()).filter(|name| !name.is_empty()).collect()
}

/// The value of a string literal.
fn text(token: &Token<'_>) -> Option<String> {
    if token.kind != TokenKind::Literal {
        return None;
    }
    let raw = token.text.starts_with('r');
    let body = token.text.trim_start_matches('r').trim_matches('#').strip_prefix('"')?.strip_suffix('"')?;
    if raw {
        return Some(body.to_owned());
    }
    Some(body.replace("\\\n", " ").replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// A name or a path, not an option, a number or a text.
fn is_program(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '.')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || "._+/-".contains(c))
}
