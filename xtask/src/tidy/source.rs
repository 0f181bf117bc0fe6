//! The files that the rules check, read once. Called by `tidy`, which passes them to the rules.

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::lex::{self, Token, TokenKind};

/// A text file of the repository, by its path from the root.
#[derive(Debug)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// A parsed Rust file.
#[derive(Debug)]
pub struct Rust<'a> {
    pub path: &'a str,
    pub lines: Vec<&'a str>,
    /// The code, without comments.
    pub code: Vec<Token<'a>>,
    pub comments: Vec<Token<'a>>,
    /// Lines of items that are compiled for tests only.
    tests: Vec<RangeInclusive<usize>>,
}

/// Every text file that git tracks or would track, without symbolic links and binary files.
pub fn load(root: &Path) -> Result<Vec<SourceFile>> {
    let listing = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("could not start git, which lists the files to check")?;
    if !listing.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr).trim());
    }
    let mut files = Vec::new();
    for path in String::from_utf8(listing.stdout)?.split_terminator('\0') {
        let full = root.join(path);
        // Skip files that are deleted but still in the index.
        let Ok(kind) = full.symlink_metadata() else { continue };
        if !kind.is_file() {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("reading {path}"))?;
        if let Ok(text) = String::from_utf8(bytes)
            && !text.contains('\0')
        {
            files.push(SourceFile { path: path.to_owned(), text });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}

impl SourceFile {
    /// The tokens of a Rust file; `None` for others.
    pub fn rust(&self) -> Option<Rust<'_>> {
        self.path.ends_with(".rs").then(|| Rust::new(&self.path, &self.text))
    }
}

impl<'a> Rust<'a> {
    pub fn new(path: &'a str, text: &'a str) -> Self {
        let (comments, code): (Vec<_>, Vec<_>) =
            lex::tokens(text).into_iter().partition(|t| t.kind == TokenKind::Comment);
        let lines: Vec<_> = text.lines().collect();
        let tests = test_lines(path, &code, lines.len());
        Self { path, lines, code, comments, tests }
    }

    /// Whether a line is part of a test.
    pub fn is_test(&self, line: usize) -> bool {
        self.tests.iter().any(|range| range.contains(&line))
    }

    /// The folder of the crate the file is in: `engine`, `bench`.
    pub fn crate_folder(&self) -> &'a str {
        crate_folder(self.path)
    }

    /// The comment on the line, without its slashes.
    pub fn comment_on(&self, line: usize) -> Option<&'a str> {
        let comment = self.comments.iter().find(|c| c.line == line)?;
        Some(comment.text.trim_start_matches(['/', '*', '!']).trim())
    }
}

/// See [`Rust::crate_folder`].
pub fn crate_folder(path: &str) -> &str {
    let path = path.strip_prefix("crates/").unwrap_or(path);
    path.split_once('/').map_or("", |(first, _)| first)
}

/// Whether the whole file is tests.
pub fn is_test_file(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.split('/').rev().skip(1).any(|folder| folder == "tests")
}

/// An attribute: the indices of its first and last token (`#` and `]`), and whether it is an inner attribute (`#![…]`).
#[derive(Debug, Clone, Copy)]
pub struct Attribute {
    pub start: usize,
    pub end: usize,
    pub inner: bool,
}

impl Attribute {
    pub fn body<'s, 'a>(&self, code: &'s [Token<'a>]) -> &'s [Token<'a>] {
        &code[self.start + 2 + usize::from(self.inner)..self.end]
    }
}

/// Every attribute of a file.
pub fn attributes(code: &[Token<'_>]) -> Vec<Attribute> {
    let mut found = Vec::new();
    for start in 0..code.len() {
        let inner = code.get(start + 1).is_some_and(|t| t.is("!"));
        let open = start + 1 + usize::from(inner);
        if code[start].is("#") && code.get(open).is_some_and(|t| t.is("[")) {
            found.push(Attribute { start, end: closing(code, open), inner });
        }
    }
    found
}

/// The index of the bracket that closes the one at `open`, or the last token.
pub fn closing(code: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate().skip(open) {
        if opens(token) {
            depth += 1;
        } else if closes(token) {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at;
            }
        }
    }
    code.len().saturating_sub(1)
}

/// Whether it opens a bracket.
pub fn opens(token: &Token<'_>) -> bool {
    token.kind == TokenKind::Punct && matches!(token.text, "(" | "[" | "{")
}

/// Whether it closes a bracket.
pub fn closes(token: &Token<'_>) -> bool {
    token.kind == TokenKind::Punct && matches!(token.text, ")" | "]" | "}")
}

/// The last token of the item or statement that an outer attribute applies to.
pub fn attributed_end(code: &[Token<'_>], attribute: &Attribute) -> usize {
    let mut start = attribute.end + 1;
    while code.get(start).is_some_and(|t| t.is("#")) {
        start = closing(code, start + 1) + 1;
    }
    let kind = statement_kind(&code[start.min(code.len())..]);
    let mut at = start;
    while at < code.len() {
        let token = &code[at];
        if closes(token) {
            return at - 1;
        }
        if token.is(";") || (token.is(",") && kind == Statement::Expression) {
            return at;
        }
        if opens(token) {
            let arm = at >= 2 && code[at - 1].is(">") && code[at - 2].is("=");
            at = closing(code, at);
            if (kind == Statement::Item || arm) && code[at].is("}") {
                return at;
            }
        }
        at += 1;
    }
    code.len().saturating_sub(1)
}

#[derive(Debug, PartialEq, Eq)]
enum Statement {
    /// Ends with its body, or with `;`.
    Item,
    /// Ends with `;`.
    Binding,
    /// A field, match arm or expression: ends with `,` or `;`, or where its surroundings end.
    Expression,
}

fn statement_kind(code: &[Token<'_>]) -> Statement {
    const ITEMS: [&str; 11] =
        ["fn", "mod", "struct", "enum", "trait", "impl", "union", "macro_rules", "for", "while", "loop"];
    const BINDINGS: [&str; 5] = ["let", "use", "static", "type", "const"];
    // `pub const fn`, `pub(crate) static`: the first keyword decides, `const` only if there is no other.
    let words = code.iter().take(12).take_while(|t| !t.is("{") && !t.is("=") && !t.is(";") && !t.is(":"));
    let words: Vec<_> = words.filter(|t| t.is_ident()).map(|t| t.text).collect();
    let bound = words.iter().position(|w| BINDINGS.contains(w) && *w != "const");
    let item = words.iter().position(|w| ITEMS.contains(w));
    match (bound, item) {
        (Some(bound), Some(item)) if bound < item => Statement::Binding,
        (_, Some(_)) => Statement::Item,
        (Some(_), None) => Statement::Binding,
        (None, None) if words.contains(&"const") => Statement::Binding,
        (None, None) => Statement::Expression,
    }
}

fn test_lines(path: &str, code: &[Token<'_>], lines: usize) -> Vec<RangeInclusive<usize>> {
    if is_test_file(path) {
        return vec![1..=lines];
    }
    let mut ranges = Vec::new();
    for attribute in attributes(code).iter().filter(|a| marks_test(a.body(code))) {
        if attribute.inner {
            return vec![1..=lines];
        }
        let end = attributed_end(code, attribute);
        ranges.push(code[attribute.start].line..=code[end].end_line);
    }
    ranges
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, `#[cfg(all(test, …))]`.
fn marks_test(body: &[Token<'_>]) -> bool {
    let words: Vec<_> = body.iter().filter(|t| t.is_ident()).map(|t| t.text).collect();
    match words.first() {
        Some(&"cfg") => words.contains(&"test") && !words.contains(&"not") && !words.contains(&"any"),
        Some(_) => {
            let path: Vec<_> = body.iter().take_while(|t| !t.is("(")).filter(|t| t.is_ident()).collect();
            path.last().is_some_and(|t| t.text == "test")
        }
        None => false,
    }
}

#[cfg(test)]
mod tests;
