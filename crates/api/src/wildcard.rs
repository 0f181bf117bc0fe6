//! Patterns of paths: the sources of `COPY` and `ADD`, and the lines of ignore files.
//!
//! `?` is a character, `*` any characters of a name, `[a-z]` and `[!a-z]` or `[^a-z]` one character in or not in a set, and `**` as a
//! whole name any number of names. A backslash before a character makes it stand for itself. A pattern is compared without recursion:
//! after a mismatch only the last star can stand for more, because every earlier one already stands for as little as possible. So a
//! comparison takes at most the product of both lengths in steps, however many stars there are, and callers with many paths bound
//! the sum by an [`Effort`].

mod parse;

use std::str::Chars;

use parse::part;

/// Steps that comparisons may still take, each of them a few nanoseconds.
#[derive(Debug)]
pub struct Effort {
    left: u64,
}

/// The steps of an [`Effort`] are used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many steps")]
pub struct EffortExceeded;

impl Effort {
    /// An effort of so many steps, shared by all patterns and paths of one request.
    pub fn new(steps: u64) -> Self {
        Self { left: steps }
    }

    /// The steps that are not used up.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Takes steps for work of any kind.
    pub fn spend(&mut self, steps: u64) -> Result<(), EffortExceeded> {
        self.left = self.left.checked_sub(steps).ok_or(EffortExceeded)?;
        Ok(())
    }
}

/// A pattern of paths whose names are separated by `/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    parts: Vec<PathPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PathPart {
    /// Any number of names.
    Names,
    Name(Vec<PatternToken>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternToken {
    One(char),
    AnyOne,
    /// Any number of characters.
    Any,
    /// One character in these ranges, or in none of them.
    In(Vec<(char, char)>),
    NotIn(Vec<(char, char)>),
}

impl PatternToken {
    fn matches(&self, character: char) -> bool {
        let is_in =
            |ranges: &[(char, char)]| ranges.iter().any(|(low, high)| (*low..=*high).contains(&character));
        match self {
            Self::One(own) => *own == character,
            Self::AnyOne | Self::Any => true,
            Self::In(ranges) => is_in(ranges),
            Self::NotIn(ranges) => !is_in(ranges),
        }
    }

    fn steps(&self) -> u64 {
        match self {
            Self::One(_) | Self::AnyOne | Self::Any => 1,
            Self::In(ranges) | Self::NotIn(ranges) => ranges.len() as u64,
        }
    }
}

/// Whether a text has characters that mean more than themselves in a pattern.
pub fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

impl Pattern {
    /// Parses a pattern. The error completes "is not a valid pattern: …".
    pub fn new(text: &str) -> Result<Self, &'static str> {
        let (mut parts, mut rest) = (Vec::new(), text);
        loop {
            let (part, after) = part(rest)?;
            parts.push(part);
            match after {
                Some(after) => rest = after,
                None => break,
            }
        }
        if parts.ends_with(&[PathPart::Names, PathPart::Name(Vec::new())]) {
            parts.pop();
        }
        if parts.last() == Some(&PathPart::Names) {
            // What is below a directory, without the directory.
            parts.push(PathPart::Name(vec![PatternToken::Any]));
        }
        Ok(Self { parts })
    }

    /// The pattern of one path.
    pub fn literal(path: &str) -> Self {
        let part = |name: &str| PathPart::Name(name.chars().map(PatternToken::One).collect());
        Self { parts: path.split('/').map(part).collect() }
    }

    /// Whether the pattern matches a whole path.
    pub fn matches(&self, path: &str) -> bool {
        self.matches_within(path, &mut Effort::new(u64::MAX)).unwrap_or(false)
    }

    /// Like [`Self::matches`], with a bound on the work.
    pub fn matches_within(&self, path: &str, effort: &mut Effort) -> Result<bool, EffortExceeded> {
        let (mut at, mut rest) = (0, Some(path));
        // Behind the last `**`: the part, and the names that it has not skipped yet.
        let mut retry: Option<(usize, &str)> = None;
        loop {
            match (self.parts.get(at), rest) {
                (None, None) => return Ok(true),
                (Some(PathPart::Names), Some(names)) => {
                    at += 1;
                    retry = Some((at, names));
                    continue;
                }
                (Some(PathPart::Name(tokens)), Some(names)) => {
                    let (name, after) = first_name(names);
                    if matches_name(tokens, name, effort)? {
                        (at, rest) = (at + 1, after);
                        continue;
                    }
                }
                // Fewer names are left than the parts need, also for a `**` that skips more.
                (Some(_), None) => return Ok(false),
                (None, Some(_)) => {}
            }
            effort.spend(1)?;
            let Some((part, names)) = retry else { return Ok(false) };
            let Some(after) = first_name(names).1 else { return Ok(false) };
            retry = Some((part, after));
            (at, rest) = (part, Some(after));
        }
    }
}

fn first_name(path: &str) -> (&str, Option<&str>) {
    path.split_once('/').map_or((path, None), |(name, after)| (name, Some(after)))
}

fn matches_name(tokens: &[PatternToken], name: &str, effort: &mut Effort) -> Result<bool, EffortExceeded> {
    let (mut at, mut rest) = (0, name.chars());
    // Behind the last `*`: the token, and the characters that it does not stand for yet.
    let mut retry: Option<(usize, Chars<'_>)> = None;
    loop {
        effort.spend(tokens.get(at).map_or(1, PatternToken::steps))?;
        let mut after = rest.clone();
        match (tokens.get(at), after.next()) {
            (Some(PatternToken::Any), _) => {
                at += 1;
                retry = Some((at, rest.clone()));
                continue;
            }
            (Some(token), Some(character)) if token.matches(character) => {
                (at, rest) = (at + 1, after);
                continue;
            }
            (None, None) => return Ok(true),
            (Some(_), None) => return Ok(false),
            (_, Some(_)) => {}
        }
        let Some((token, characters)) = &mut retry else { return Ok(false) };
        if characters.next().is_none() {
            return Ok(false);
        }
        (at, rest) = (*token, characters.clone());
    }
}

#[cfg(test)]
mod tests;
