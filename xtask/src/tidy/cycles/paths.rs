//! The paths a file names: `use` trees, and `a::b` in code. Called by `cycles` alone.

use super::super::lex::Token;
use super::super::source::Rust;

/// A path as written, without its generics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub path: Vec<String>,
    pub line: usize,
    /// The name under which a `use` imports it.
    pub import: Option<String>,
}

/// Every path of the file outside tests.
pub fn named_paths(file: &Rust<'_>) -> Vec<Named> {
    let code = &file.code;
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if file.is_test(code[at].line) {
            at += 1;
        } else if code[at].is("use") {
            let leading = usize::from(separator(code, at + 1)) * 2;
            at = tree(code, at + 1 + leading, &[], &mut found);
        } else if code[at].is_ident() && separator(code, at + 1) {
            let mut path = vec![code[at].text.to_owned()];
            let line = code[at].line;
            at += 1;
            while separator(code, at) && code.get(at + 2).is_some_and(Token::is_ident) {
                path.push(code[at + 2].text.to_owned());
                at += 3;
            }
            found.push(Named { path, line, import: None });
            // Skip the `::` of a turbofish.
            at += usize::from(separator(code, at)) * 2;
        } else {
            at += 1;
        }
    }
    found
}

/// Whether the tokens at `at` are `::`.
fn separator(code: &[Token<'_>], at: usize) -> bool {
    code.get(at).is_some_and(|t| t.is(":")) && code.get(at + 1).is_some_and(|t| t.is(":"))
}

/// Parses the `use` tree at `at` below `prefix`; returns the index after it.
fn tree(code: &[Token<'_>], at: usize, prefix: &[String], found: &mut Vec<Named>) -> usize {
    let Some(token) = code.get(at) else { return at };
    if token.is("{") {
        let mut next = at + 1;
        while code.get(next).is_some_and(|t| !t.is("}")) {
            next = if code[next].is(",") { next + 1 } else { tree(code, next, prefix, found) };
        }
        return next + 1;
    }
    let mut path = prefix.to_vec();
    if !token.is_ident() {
        // A glob: only the module is known.
        found.push(Named { path, line: token.line, import: None });
        return at + 1;
    }
    // `a::{self}` is `a`.
    if path.is_empty() || !token.is("self") {
        path.push(token.text.to_owned());
    }
    if separator(code, at + 1) {
        return tree(code, at + 3, &path, found);
    }
    let renamed = code.get(at + 1).is_some_and(|t| t.is("as"));
    let import = if renamed { code.get(at + 2).map(|t| t.text.to_owned()) } else { path.last().cloned() };
    found.push(Named { path, line: token.line, import });
    at + if renamed { 3 } else { 1 }
}
