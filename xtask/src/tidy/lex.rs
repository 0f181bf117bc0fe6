//! A Rust tokeniser, sufficient for the rules: it separates code from comments and strings, and records each token's line. Called
//! by `source`. It accepts any text; the compiler reports invalid Rust.

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    Ident,
    Punct,
    /// Strings, characters, numbers and lifetimes.
    Literal,
    Comment,
}

/// A piece of source text, with its first and last line, counted from 1.
#[derive(Debug, Clone, Copy)]
pub struct Token<'a> {
    pub kind: TokenKind,
    pub text: &'a str,
    pub line: usize,
    pub end_line: usize,
}

impl Token<'_> {
    pub fn is(&self, text: &str) -> bool {
        self.kind != TokenKind::Comment && self.kind != TokenKind::Literal && self.text == text
    }

    pub fn is_ident(&self) -> bool {
        self.kind == TokenKind::Ident
    }
}

/// All tokens of a file, comments among them.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let (mut at, mut line) = (0, 1);
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            line += usize::from(first == '\n');
            at += first.len_utf8();
            continue;
        }
        let (kind, length) = token(&text[at..], first);
        let piece = &text[at..at + length];
        let end_line = line + piece.matches('\n').count();
        found.push(Token { kind, text: piece, line, end_line });
        at += length;
        line = end_line;
    }
    found
}

/// The kind and length in bytes of the token at the start of `rest`, which begins with `first`.
fn token(rest: &str, first: char) -> (TokenKind, usize) {
    if rest.starts_with("//") {
        return (TokenKind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (TokenKind::Comment, block_comment(rest));
    }
    if let Some(length) = prefixed_string(rest) {
        return (TokenKind::Literal, length);
    }
    match first {
        '"' => (TokenKind::Literal, quoted(rest, '"')),
        '\'' => (TokenKind::Literal, character_or_lifetime(rest)),
        c if c.is_ascii_digit() => (TokenKind::Literal, number(rest)),
        c if c == '_' || c.is_alphabetic() => (TokenKind::Ident, word(rest)),
        c => (TokenKind::Punct, c.len_utf8()),
    }
}

fn word(rest: &str) -> usize {
    rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len())
}

/// Length of a number; `1..2` and `1.max(2)` end at the point.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    let mut after = rest[whole..].chars();
    if after.next() == Some('.') && after.next().is_some_and(|c| c.is_ascii_digit()) {
        return whole + 1 + word(&rest[whole + 1..]);
    }
    whole
}

/// Length of a block comment, nested ones included.
fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Length of a quoted text with both quotes, with backslash escapes.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Length of `r"…"`, `r#"…"#`, `b"…"`, `br#"…"#`, `c"…"`, `b'…'`, or nothing.
fn prefixed_string(rest: &str) -> Option<usize> {
    let prefix = ["br", "cr", "b", "c", "r"].into_iter().find(|p| {
        rest.strip_prefix(p).is_some_and(|after| after.trim_start_matches('#').starts_with(['"', '\'']))
    })?;
    let after = &rest[prefix.len()..];
    let hashes = after.len() - after.trim_start_matches('#').len();
    if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(hashes));
        let body = prefix.len() + hashes + 1;
        let found = after.as_bytes().get(hashes) == Some(&b'"');
        return found.then(|| {
            rest.get(body..).and_then(|b| b.find(&end)).map_or(rest.len(), |at| body + at + end.len())
        });
    }
    match (hashes, prefix, after.chars().next()?) {
        (0, _, '"') => Some(prefix.len() + quoted(after, '"')),
        (0, "b", '\'') => Some(prefix.len() + quoted(after, '\'')),
        _ => None,
    }
}

/// Length of `'a'`, `'\n'` or the lifetime `'a`.
fn character_or_lifetime(rest: &str) -> usize {
    let mut chars = rest.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        (Some(_), _) => 1 + word(&rest[1..]).max(1).min(rest.len() - 1),
        (None, _) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, kind: TokenKind) -> Vec<&str> {
        tokens(text).into_iter().filter(|t| t.kind == kind).map(|t| t.text).collect()
    }

    #[test]
    fn strings_and_comments_are_not_code() {
        let text = r###"let a = "unsafe \" {"; // unsafe
            let b = r#"unwrap " "#; /* a /* b */ unsafe */ let c = b"x"; let d = br"\"; let e = b'\'';"###;
        assert_eq!(
            texts(text, TokenKind::Ident),
            ["let", "a", "let", "b", "let", "c", "let", "d", "let", "e"]
        );
        assert_eq!(texts(text, TokenKind::Comment), ["// unsafe", "/* a /* b */ unsafe */"]);
    }

    #[test]
    fn lifetimes_characters_and_numbers_are_distinguished() {
        assert_eq!(
            texts("'a 'b' '\\'' 'static '\"' 1..2 1.5 0x_ff", TokenKind::Literal),
            ["'a", "'b'", "'\\''", "'static", "'\"'", "1", "2", "1.5", "0x_ff"]
        );
    }

    #[test]
    fn names_that_begin_like_a_string_are_names() {
        assert_eq!(
            texts("r b br bytes r#type crate::x", TokenKind::Ident),
            ["r", "b", "br", "bytes", "r", "type", "crate", "x"]
        );
    }

    #[test]
    fn lines_are_counted_through_strings_of_many_lines() {
        let found = tokens("a\n\"x\ny\"\nb");
        let lines: Vec<_> = found.iter().map(|t| (t.line, t.end_line)).collect();
        assert_eq!(lines, [(1, 1), (2, 3), (4, 4)]);
    }

    #[test]
    fn unterminated_tokens_end_with_the_text() {
        for text in ["\"a", "r#\"a", "/* a", "'", "b'", "'é", "1."] {
            let length: usize = tokens(text).iter().map(|t| t.text.len()).sum();
            assert_eq!(length, text.len(), "{text}");
        }
    }
}
