//! Finds the commands of a shell script: a parser of words, quotes, substitutions and `case`, sufficient for scripts that shellcheck
//! accepts. Called by `programs`, `pipes` and `removals`. Text that is not a script gives unknown commands, which the check reports.

use std::collections::BTreeSet;

use super::ProgramStart;

/// Words after which a command begins.
const KEYWORDS: [&str; 14] =
    ["if", "then", "else", "elif", "fi", "do", "done", "while", "until", "!", "{", "}", "time", "esac"];
const BUILTINS: [&str; 41] = [
    ".", ":", "[", "[[", "]]", "alias", "break", "cd", "compgen", "complete", "compopt", "continue",
    "declare", "disown", "echo", "eval", "exit", "export", "false", "getopts", "hash", "jobs", "kill", "let",
    "local", "mapfile", "printf", "pwd", "read", "return", "set", "shift", "shopt", "source", "test", "trap",
    "true", "type", "umask", "unset", "wait",
];
/// Commands that start the program in their arguments, after this number of own arguments.
const CARRIERS: [(&str, usize); 8] = [
    ("command", 0),
    ("exec", 0),
    ("sudo", 0),
    ("setsid", 0),
    ("xargs", 0),
    ("unshare", 0),
    ("timeout", 1),
    // From dev.d/lint.sh: a name, then a command.
    ("check", 1),
];

/// The functions that a script defines.
pub fn functions(text: &str) -> BTreeSet<String> {
    let names =
        text.lines().filter_map(|line| line.trim_start().split_once("()").map(|(name, _)| name.trim()));
    names.filter(|name| is_name(name)).map(str::to_owned).collect()
}

/// The programs that a script starts, without `functions` and the functions that it defines itself.
pub(super) fn starts(text: &str, functions: &BTreeSet<String>) -> BTreeSet<ProgramStart> {
    let own = self::functions(text);
    let known =
        |program: &str| functions.contains(program) || own.contains(program) || BUILTINS.contains(&program);
    let found = commands(text).into_iter().filter(|(_, program)| !known(program));
    found.map(|(at, program)| ProgramStart { line: line_of(text, at), program }).collect()
}

/// Every command of a script, builtins and functions too, with its byte offset.
pub fn commands(text: &str) -> Vec<(usize, String)> {
    let mut reader = ShellReader { text, at: 0, found: Vec::new() };
    reader.commands(None);
    reader.found
}

/// The words of the simple command at the byte offset `at`, without quotes. Expansions are not expanded.
pub fn words(text: &str, at: usize) -> Vec<String> {
    let mut reader = ShellReader { text, at, found: Vec::new() };
    let mut words = Vec::new();
    while let Some(next) = reader.peek() {
        match next {
            '\n' | ';' | '&' | '|' | ')' | '(' | '`' => break,
            '\\' if reader.rest().starts_with("\\\n") => reader.skip(2),
            '<' | '>' => drop(reader.redirection()),
            c if c.is_whitespace() => reader.skip(1),
            _ => words.push(reader.take_word()),
        }
    }
    words
}

/// The line of a byte offset, counted from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text[..at].matches('\n').count()
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c == '_' || c == '-' || c.is_ascii_alphanumeric())
}

struct ShellReader<'a> {
    text: &'a str,
    at: usize,
    found: Vec<(usize, String)>,
}

/// The role of the next word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordPosition {
    Command,
    Argument,
    /// An argument of a carrier, which has this number of own arguments left.
    Carried(usize),
    /// Until the `)` of a `case` branch.
    Pattern,
}

impl ShellReader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.at += self.peek().map_or(0, char::len_utf8);
        }
    }

    /// Reads commands until `end` or the end of the text.
    fn commands(&mut self, end: Option<char>) {
        let mut position = WordPosition::Command;
        // For each open `case`, whether its `in` was read.
        let mut cases: Vec<bool> = Vec::new();
        let mut heredocs: Vec<String> = Vec::new();
        while let Some(next) = self.peek() {
            if Some(next) == end && position != WordPosition::Pattern {
                self.skip(1);
                return;
            }
            match next {
                '\n' => {
                    self.skip(1);
                    for delimiter in std::mem::take(&mut heredocs) {
                        self.heredoc(&delimiter);
                    }
                    if position != WordPosition::Pattern {
                        position = WordPosition::Command;
                    }
                }
                c if c.is_whitespace() => self.skip(1),
                '\\' if self.rest().starts_with("\\\n") => self.skip(2),
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                ';' | '&' | '|' | '(' | ')' => position = self.operator(position, &cases),
                '<' | '>' => heredocs.extend(self.redirection()),
                _ => position = self.word(position, &mut cases),
            }
        }
    }

    fn operator(&mut self, position: WordPosition, cases: &[bool]) -> WordPosition {
        let branch_ends = self.rest().starts_with(";;");
        let opens = self.rest().starts_with('(');
        let closes = self.rest().starts_with(')');
        self.skip(if branch_ends { 2 } else { 1 });
        match position {
            WordPosition::Pattern if closes => WordPosition::Command,
            WordPosition::Pattern => WordPosition::Pattern,
            _ if branch_ends && cases.last() == Some(&true) => WordPosition::Pattern,
            // `name()` defines a function.
            WordPosition::Argument if opens => WordPosition::Argument,
            _ => WordPosition::Command,
        }
    }

    fn word(&mut self, position: WordPosition, cases: &mut Vec<bool>) -> WordPosition {
        let start = self.at;
        let word = self.take_word();
        if word == "esac" && matches!(position, WordPosition::Pattern | WordPosition::Command) {
            cases.pop();
            return WordPosition::Command;
        }
        match position {
            WordPosition::Pattern => WordPosition::Pattern,
            WordPosition::Argument if word == "in" && cases.last() == Some(&false) => {
                *cases.last_mut().unwrap_or(&mut false) = true;
                WordPosition::Pattern
            }
            WordPosition::Argument => WordPosition::Argument,
            // `command -v NAME` does not start it.
            WordPosition::Carried(_) if word == "-v" => WordPosition::Argument,
            WordPosition::Carried(skipped) if word.starts_with('-') || word.contains('=') => {
                WordPosition::Carried(skipped)
            }
            WordPosition::Carried(skipped) if skipped > 0 => WordPosition::Carried(skipped - 1),
            WordPosition::Command if is_assignment(&word) => WordPosition::Command,
            WordPosition::Command if KEYWORDS.contains(&word.as_str()) => WordPosition::Command,
            WordPosition::Command | WordPosition::Carried(_) => {
                if word == "case" {
                    cases.push(false);
                }
                self.begin(start, word)
            }
        }
    }

    /// Records a command; returns the role of its arguments.
    fn begin(&mut self, start: usize, word: String) -> WordPosition {
        let own =
            ["case", "for", "select", "function"].contains(&word.as_str()) || self.rest().starts_with("()");
        if word == "[[" {
            self.at += self.rest().find("]]").map_or(0, |at| at + 2);
        }
        let carrier = CARRIERS.iter().find(|(name, _)| *name == word);
        let expanded = word.contains('$') || word.contains('"') || word.contains('{');
        let shell = matches!(word.as_str(), "command" | "exec");
        // In `exec 9>file` the number belongs to the redirection.
        let number = word.chars().all(|c| c.is_ascii_digit());
        if !own && !expanded && !shell && !number {
            self.found.push((start, word));
        }
        carrier.map_or(WordPosition::Argument, |(_, skipped)| WordPosition::Carried(*skipped))
    }

    /// A redirection and its target. Returns the delimiter of a here-document.
    fn redirection(&mut self) -> Option<String> {
        if self.rest()[1..].starts_with('(') {
            self.skip(2);
            self.commands(Some(')'));
            return None;
        }
        let operator: String = self.rest().chars().take_while(|c| "<>&|-".contains(*c)).collect();
        self.skip(operator.len());
        while self.peek().is_some_and(|c| c == ' ') {
            self.skip(1);
        }
        let target = self.take_word();
        (operator == "<<" || operator == "<<-").then(|| target.trim_matches(['\'', '"']).to_owned())
    }

    fn heredoc(&mut self, delimiter: &str) {
        while !self.rest().is_empty() {
            let line = self.rest().lines().next().unwrap_or_default();
            let last = line.trim() == delimiter;
            self.at = self.text.len().min(self.at + line.len() + 1);
            if last {
                return;
            }
        }
    }

    /// Reads a word without its quotes, and records commands inside substitutions.
    fn take_word(&mut self) -> String {
        let mut word = String::new();
        while let Some(next) = self.peek() {
            match next {
                c if c.is_whitespace() || ";&|<>)".contains(c) => break,
                '(' if word.ends_with('=') => {
                    self.skip(1);
                    self.list();
                }
                '(' => break,
                '\\' => self.skip(2),
                '\'' => {
                    let end = self.rest()[1..].find('\'').map_or(self.rest().len(), |at| at + 2);
                    word.push_str(self.rest()[..end].trim_matches('\''));
                    self.at += end;
                }
                '"' => {
                    self.skip(1);
                    self.quoted(&mut word);
                }
                '$' | '`' => self.expansion(&mut word),
                c => {
                    word.push(c);
                    self.skip(1);
                }
            }
        }
        word
    }

    /// The values of an array.
    fn list(&mut self) {
        while let Some(next) = self.peek() {
            match next {
                ')' => return self.skip(1),
                '#' => self.at += self.rest().find('\n').unwrap_or(self.rest().len()),
                c if c.is_whitespace() || ";&|<>(".contains(c) => self.skip(1),
                _ => drop(self.take_word()),
            }
        }
    }

    fn quoted(&mut self, word: &mut String) {
        while let Some(next) = self.peek() {
            match next {
                '"' => return self.skip(1),
                '\\' => self.skip(2),
                '$' | '`' => self.expansion(word),
                c => {
                    word.push(c);
                    self.skip(1);
                }
            }
        }
    }

    fn expansion(&mut self, word: &mut String) {
        word.push('$');
        let rest = self.rest();
        if rest.starts_with("$((") {
            self.at += rest.find("))").map_or(rest.len(), |at| at + 2);
        } else if rest.starts_with("$(") {
            self.skip(2);
            self.commands(Some(')'));
        } else if rest.starts_with("${") {
            self.braces();
        } else if rest.starts_with('`') {
            self.skip(1);
            self.commands(Some('`'));
        } else {
            self.skip(1);
        }
    }

    /// `${…}`, with the expansions inside.
    fn braces(&mut self) {
        self.skip(2);
        while let Some(next) = self.peek() {
            match next {
                '}' => return self.skip(1),
                '\\' => self.skip(2),
                '$' | '`' => self.expansion(&mut String::new()),
                _ => self.skip(1),
            }
        }
    }
}

fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.trim_end_matches('+').split('[').next().unwrap_or_default();
    !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}
