//! Finds what a file declares: public items, and functions with a `bool` parameter. Called by `figures`, which leaves tests
//! out. It reads tokens and expands no macro.

use std::collections::BTreeMap;

use crate::tidy::lex::{Token, TokenKind};
use crate::tidy::source::{Attribute, Rust, attributes, closing};
use crate::tidy::type_names::DefinedName;

/// What a public item is to the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublicKind {
    /// A function, method, type, trait, constant or static.
    Item,
    /// A module, which its own file may document.
    Module,
    /// A field with a name.
    Field,
}

/// Something with an unrestricted `pub`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicItem<'a> {
    pub kind: PublicKind,
    pub name: &'a str,
    pub line: usize,
    /// Whether a doc comment or a `doc` attribute is above it.
    pub documented: bool,
}

/// The public items of a file, without those that `#[doc(hidden)]` hides.
pub fn public_items<'a>(file: &Rust<'a>) -> Vec<PublicItem<'a>> {
    let code = &file.code;
    let outer: BTreeMap<usize, Attribute> =
        attributes(code).into_iter().filter(|a| !a.inner).map(|a| (a.end, a)).collect();
    let is_line_doc = |text: &str| text.starts_with("///") && !text.starts_with("////");
    let is_doc = |text: &str| is_line_doc(text) || text.starts_with("/**");
    let docs: Vec<usize> = file.comments.iter().filter(|c| is_doc(c.text)).map(|c| c.line).collect();
    let mut found = Vec::new();
    for at in 0..code.len() {
        if !code[at].is("pub") {
            continue;
        }
        let Some((kind, name)) = declared(code, at + 1) else { continue };
        let line = code[at].line;
        match documentation(code, &outer, &docs, at) {
            Documentation::Hidden => {}
            Documentation::Present => found.push(PublicItem { kind, name, line, documented: true }),
            Documentation::Missing => found.push(PublicItem { kind, name, line, documented: false }),
        }
    }
    found
}

/// What the tokens after `pub` declare. `None` for `pub use`, `pub(crate)` and the fields of tuples.
fn declared<'a>(code: &[Token<'a>], after_pub: usize) -> Option<(PublicKind, &'a str)> {
    let word = |at: usize| code.get(at).map_or("", |token| token.text);
    let mut at = after_pub;
    loop {
        match word(at) {
            "unsafe" | "async" | "extern" => at += 1,
            "const" if matches!(word(at + 1), "fn" | "unsafe" | "async" | "extern") => at += 1,
            // The ABI after `extern`.
            text if text.starts_with('"') => at += 1,
            _ => break,
        }
    }
    let kind = match word(at) {
        _ if code.get(at)?.is_ident() && word(at + 1) == ":" && word(at + 2) != ":" => {
            return Some((PublicKind::Field, word(at)));
        }
        "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" => PublicKind::Item,
        "mod" => PublicKind::Module,
        _ => return None,
    };
    let name = at + if word(at + 1) == "mut" { 2 } else { 1 };
    // In a macro the name can be `$name`.
    code.get(name).filter(|token| token.is_ident()).map(|token| (kind, token.text))
}

enum Documentation {
    Present,
    Missing,
    Hidden,
}

/// The documentation of the item whose `pub` is the token `at`: between the token before the item and `pub`, attributes included.
fn documentation(
    code: &[Token<'_>],
    outer: &BTreeMap<usize, Attribute>,
    docs: &[usize],
    at: usize,
) -> Documentation {
    let mut start = at;
    let mut has_attribute = false;
    while let Some(attribute) = start.checked_sub(1).and_then(|end| outer.get(&end)) {
        let body = attribute.body(code);
        if body.first().is_some_and(|t| t.is("doc")) {
            if body.iter().any(|t| t.is("hidden")) {
                return Documentation::Hidden;
            }
            has_attribute = true;
        }
        start = attribute.start;
    }
    let above = start.checked_sub(1).map_or(0, |before| code[before].end_line);
    let lines = above + 1..=code[at].line;
    if has_attribute || docs.iter().any(|line| lines.contains(line)) {
        Documentation::Present
    } else {
        Documentation::Missing
    }
}

/// The functions and methods of a file that have a parameter of the type `bool`, `&bool` or `&mut bool`.
pub fn bool_functions<'a>(file: &Rust<'a>) -> Vec<DefinedName<'a>> {
    let code = &file.code;
    let mut found = Vec::new();
    for at in 0..code.len().saturating_sub(1) {
        // `fn(u8)` is a type.
        if !code[at].is("fn") || !code[at + 1].is_ident() {
            continue;
        }
        let Some(open) = parameters(code, at + 2) else { continue };
        let end = closing(code, open);
        if (open + 1..end).any(|at| is_bool_parameter(code, at, end)) {
            found.push(DefinedName { name: code[at + 1].text, line: code[at].line });
        }
    }
    found
}

/// The bracket that opens the parameters of a function, after its generics.
fn parameters(code: &[Token<'_>], after_name: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = after_name;
    while let Some(token) = code.get(at) {
        match token.text {
            "(" if depth == 0 => return Some(at),
            "<" => depth += 1,
            ">" if !code[at - 1].is("-") => depth = depth.saturating_sub(1),
            "(" | "[" | "{" => at = closing(code, at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Whether the token `at` is the type `bool` at the end of a parameter, in parameters that close at `end`.
fn is_bool_parameter(code: &[Token<'_>], at: usize, end: usize) -> bool {
    if !code[at].is("bool") || !(at + 1 == end || code[at + 1].is(",")) {
        return false;
    }
    // A lifetime is a literal to the tokeniser.
    let is_reference = |t: &Token<'_>| t.is("&") || t.is("mut") || t.kind == TokenKind::Literal;
    let before = code[..at].iter().rposition(|t| !is_reference(t));
    before.is_some_and(|colon| colon > 0 && code[colon].is(":") && !code[colon - 1].is(":"))
}

#[cfg(test)]
mod tests;
