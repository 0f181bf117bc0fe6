//! Reads the parts of a pattern.

use super::{PathPart, PatternToken};

/// The first part of a pattern, and what follows its slash.
pub(super) fn part(text: &str) -> Result<(PathPart, Option<&str>), &'static str> {
    let mut tokens = Vec::new();
    let mut rest = text.chars();
    loop {
        let before = rest.as_str();
        match rest.next() {
            None => return Ok((PathPart::Name(tokens), None)),
            Some('/') => return Ok((PathPart::Name(tokens), Some(rest.as_str()))),
            Some('?') => tokens.push(PatternToken::AnyOne),
            Some('*') => {
                let stars = before.len() - before.trim_start_matches('*').len();
                let after = &before[stars..];
                match stars {
                    1 => tokens.push(PatternToken::Any),
                    2 if tokens.is_empty() && (after.is_empty() || after.starts_with('/')) => {
                        return Ok((PathPart::Names, after.strip_prefix('/')));
                    }
                    2 => return Err("'**' is a whole name of a path, as in 'a/**/b'"),
                    _ => return Err("more than two stars follow each other"),
                }
            }
            Some('[') => {
                let (set, after) =
                    set(rest.as_str()).ok_or("a set such as '[a-z]' is empty or not closed")?;
                tokens.push(set);
                rest = after.chars();
            }
            // The next character stands for itself.
            Some('\\') => tokens.push(PatternToken::One(rest.next().unwrap_or('\\'))),
            Some(character) => tokens.push(PatternToken::One(character)),
        }
    }
}

/// A set, behind its `[`, and what follows its `]`. A `]` that comes first is in the set.
fn set(text: &str) -> Option<(PatternToken, &str)> {
    let (is_negated, text) = match text.strip_prefix(['!', '^']) {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let first = text.chars().next()?.len_utf8();
    let end = first + text[first..].find(']')?;
    let characters: Vec<char> = text[..end].chars().collect();
    let (mut ranges, mut rest) = (Vec::new(), characters.as_slice());
    while let [low, more @ ..] = rest {
        rest = match more {
            ['-', high, more @ ..] => {
                ranges.push((*low, *high));
                more
            }
            _ => {
                ranges.push((*low, *low));
                more
            }
        };
    }
    let token = if is_negated { PatternToken::NotIn(ranges) } else { PatternToken::In(ranges) };
    Some((token, &text[end + 1..]))
}
