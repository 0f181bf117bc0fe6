//! No command that stops reading early is at the end of a pipe under `set -o pipefail`. Called by `tidy`.
//!
//! `program | grep -m 1 x` fails now and then: grep ends at the first match, the program gets SIGPIPE for what it writes later, and
//! pipefail makes that the status of the whole. With `runsc --version` this removed a complete gVisor in 8 of 60 tries on a busy
//! machine. Checked are the scripts of the host, the `sh` blocks of the documents that a test runs, and the literals of Rust files
//! that start bash with pipefail.

use super::documents::shell_blocks;
use super::programs::shell::{self, line_of};
use super::programs::{TESTED_DOCUMENTS, is_script};
use super::source::{Rust, SourceFile};
use super::{Violation, lex::TokenKind, text_of};

const RULE: &str = "pipe-ends-early";
const GREPS: [&str; 3] = ["grep", "egrep", "fgrep"];
const AWKS: [&str; 3] = ["awk", "mawk", "gawk"];
/// Short options of grep with a value, which is the rest of the word or the next word.
const GREP_VALUES: &str = "efABCDd";

/// Finds pipes whose last command may stop reading early.
pub fn check(sources: &[SourceFile], rust: &[Rust<'_>]) -> Vec<Violation> {
    let mut found = Vec::new();
    for file in sources.iter().filter(|file| is_script(file)) {
        found.extend(violations(&file.path, 1, &file.text));
    }
    for name in TESTED_DOCUMENTS {
        for (line, block) in shell_blocks(text_of(sources, name).unwrap_or_default()) {
            found.extend(violations(name, line, &block));
        }
    }
    // The rule's own examples are not run.
    for file in rust.iter().filter(|file| !file.path.starts_with("xtask/src/tidy/")) {
        let literals = || file.code.iter().filter(|token| token.kind == TokenKind::Literal);
        if literals().any(|token| token.text.contains("pipefail")) {
            for token in literals() {
                found.extend(violations(file.path, token.line, &unescaped(token.text)));
            }
        }
    }
    found
}

fn violations(path: &str, first_line: usize, script: &str) -> Vec<Violation> {
    let commands = shell::commands(script).into_iter();
    let early = commands.filter(|(at, _)| reads_a_pipe(&script[..*at])).filter_map(|(at, program)| {
        let words = shell::words(script, at);
        let instead = remedy(&program, words.get(1..).unwrap_or_default())?;
        let remedy = format!(
            "{program} ends before it has read everything, which fails the command before it under pipefail; {instead}"
        );
        Some(Violation::new(path, first_line + line_of(script, at) - 1, RULE, remedy))
    });
    early.collect()
}

/// Whether the text ends with a `|`, apart from assignments and line ends.
fn reads_a_pipe(before: &str) -> bool {
    let mut rest = before;
    loop {
        rest = rest.trim_end_matches(|c: char| c.is_whitespace() || c == '\\');
        let word = rest.rsplit(|c: char| c.is_whitespace() || c == '|').next().unwrap_or_default();
        if word.is_empty() || !word.contains('=') {
            break;
        }
        rest = &rest[..rest.len() - word.len()];
    }
    (rest.ends_with('|') && !rest.ends_with("||")) || rest.ends_with("|&")
}

/// What to write in place of a command that may end early, or `None` if it reads everything.
fn remedy(program: &str, arguments: &[String]) -> Option<&'static str> {
    const CAPTURE: &str =
        "read the output into a variable first: text=$(command); grep -q PATTERN <<<\"$text\"";
    match program {
        _ if GREPS.contains(&program) => ends_grep(arguments).then_some(CAPTURE),
        "head" => (!drops_the_end(arguments))
            .then_some("use sed -n '1,Np' for lines, or write the output to a file first"),
        "sed" => arguments
            .iter()
            .any(|word| quits(word))
            .then_some("select lines with sed -n '…p', which reads everything"),
        _ if AWKS.contains(&program) => arguments
            .iter()
            .any(|word| has_word(word, "exit"))
            .then_some("set a variable instead of exit, and print it in END"),
        "read" => Some("use a here-string: read -r name <<<\"$(command)\""),
        "true" | ":" => Some("redirect to /dev/null"),
        _ => None,
    }
}

/// Whether grep with these arguments ends at a match.
fn ends_grep(arguments: &[String]) -> bool {
    const LONG: [&str; 5] =
        ["--quiet", "--silent", "--max-count", "--files-with-matches", "--files-without-match"];
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word.starts_with("--") {
            if LONG.contains(&word.split('=').next().unwrap_or_default()) {
                return true;
            }
        } else if let Some(letters) = word.strip_prefix('-') {
            let flags = letters.find(|c| GREP_VALUES.contains(c));
            if letters[..flags.unwrap_or(letters.len())].contains(['q', 'm', 'l', 'L']) {
                return true;
            }
            // The next word is the value.
            if flags.is_some_and(|at| at + 1 == letters.len()) {
                words.next();
            }
        }
    }
    false
}

/// `-n -5` and `--lines=-5` of head leave out the end, so that all must be read. `-5` alone is the old form of `-n 5`.
fn drops_the_end(arguments: &[String]) -> bool {
    let attached = |word: &'_ str| -> Option<String> {
        let long = word.strip_prefix("--lines=").or_else(|| word.strip_prefix("--bytes="));
        long.or_else(|| word.strip_prefix("-n")).or_else(|| word.strip_prefix("-c")).map(str::to_owned)
    };
    let next = |at: usize| arguments.get(at + 1).cloned().unwrap_or_default();
    let values = arguments.iter().enumerate().filter_map(|(at, word)| match word.as_str() {
        "-n" | "-c" | "--lines" | "--bytes" => Some(next(at)),
        word => attached(word),
    });
    values.into_iter().any(|value| value.starts_with('-'))
}

/// Whether a script of sed has the command `q` or `Q`.
fn quits(word: &str) -> bool {
    word.split([';', '\n', '{', '}']).any(|command| {
        let command = command.trim().trim_end_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let Some(address) = command.strip_suffix(['q', 'Q']) else { return false };
        address.is_empty() || address.ends_with(|c: char| c.is_ascii_digit() || "$/! ".contains(c))
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == word)
}

/// The text of a literal of Rust, well enough for scripts.
fn unescaped(literal: &str) -> String {
    let start = literal.find('"').map_or(0, |at| at + 1);
    let end = literal.rfind('"').filter(|end| *end >= start).unwrap_or(literal.len());
    let text = &literal[start..end];
    if literal.starts_with('r') {
        return text.to_owned();
    }
    // On one line, so that the line numbers stay those of the file.
    text.replace("\\n", ";").replace("\\\"", "\"").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(script: &str) -> Vec<usize> {
        violations("a.sh", 1, script).into_iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn commands_that_end_early_are_found() {
        for script in [
            "a | grep -q x",
            "a | grep -Eom 1 x",
            "a | LC_ALL=C grep --max-count=1 x",
            "a |\n  egrep --quiet x",
            "a | grep -l x",
            "a | head",
            "a | head -n 1",
            "a | head -5",
            "a | head -c 4",
            "a | sed 1q",
            "a | sed -n '/x/{p;q}'",
            "a | sed '$!d; 3 q5'",
            "a | awk '{ print; exit }'",
            "a | read -r name",
            "a |& head -1",
            "b || a | true",
            "x=$(a | grep -m 1 y)",
            "if a | grep -q INTERP; then b; fi",
            "\"$1\" --version 2>/dev/null | \\\n grep -Eom 1 '[0-9]{8}'",
        ] {
            assert_eq!(lines(script).len(), 1, "{script}");
        }
        assert_eq!(lines("a\nb |\n  head -n 1\n"), [3]);
    }

    #[test]
    fn commands_that_read_everything_pass() {
        for script in [
            "a | grep x",
            "a | grep -o x",
            "a | grep -c q",
            "a | grep -e -q",
            "a | grep -eq",
            "a || grep -q x",
            "grep -q x file",
            "grep -q x <<<\"$text\"",
            "a | head -n -1",
            "a | head --lines=-20",
            "a | tail -n 1",
            "a | sed -n 1p",
            "a | sed 's/x/q/'",
            "a | sed -n 's/.* \"q\": \\(.*\\)/\\1/p'",
            "a | awk '{ print $1 }'",
            "a | while read -r line; do b; done",
            "say 'a | grep -q x'",
            "# a | grep -q x",
            "cat <<'X'\na | head\nX",
        ] {
            assert_eq!(lines(script), [0; 0], "{script}");
        }
    }

    #[test]
    fn scripts_documents_and_literals_are_checked() {
        let source = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
        let sources = [
            source("dev.d/a.sh", "a | head -n 1\n"),
            source("docs/api.md", "a | head\n\n```sh\na\na | head\n```\n"),
            source("e2e/a.rs", "fn f() { bash(\"set -o pipefail\"); bash(\"a\\nb | grep -q \\\"x\\\"\"); }"),
            source("e2e/b.rs", "fn f() { bash(\"b | grep -q x\"); }"),
        ];
        let rust: Vec<_> = sources.iter().filter_map(SourceFile::rust).collect();
        let found: Vec<_> = check(&sources, &rust).into_iter().map(|v| (v.path, v.line)).collect();
        let expected = [("dev.d/a.sh", 1), ("docs/api.md", 5), ("e2e/a.rs", 1)];
        assert_eq!(found, expected.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn the_remedy_says_what_to_write() {
        let found = violations("a.sh", 1, "a | grep -q x");
        assert!(found[0].remedy.contains("grep -q PATTERN <<<\"$text\""), "{found:?}");
    }
}
